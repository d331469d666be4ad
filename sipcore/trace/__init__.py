"""The SIP messages of each call, kept for its trace."""
