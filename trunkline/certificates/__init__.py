"""The local certificate authority and the certificate of HTTPS that it issues for this machine."""
