"""SIP trunks from phone numbers: registration, source allowlist, the operator's policy."""
