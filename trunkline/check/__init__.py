"""`trunkline check`: proves settings, SIP, models and sandbox before serving."""
