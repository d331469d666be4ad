"""RFC 3263: from a SIP host to its addresses."""
