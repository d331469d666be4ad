"""SIP trace: the SIP messages of each call."""
