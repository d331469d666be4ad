"""SIP headers and messages as Python values."""
