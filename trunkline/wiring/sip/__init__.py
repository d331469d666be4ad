"""The SIP side of a server: its endpoint and trunks, with their metrics."""
