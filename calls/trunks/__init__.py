"""SIP trunks of phone numbers: provisioning, DNS of their hosts, source allowlist, authorization."""
