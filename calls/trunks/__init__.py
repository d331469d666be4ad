"""SIP trunks of phone numbers: provisioning, tracking of host names, source allowlist, the operator's policy."""
