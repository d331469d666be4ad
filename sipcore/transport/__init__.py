"""SIP transports: UDP, TCP and TLS listeners, certificates, connection errors."""
