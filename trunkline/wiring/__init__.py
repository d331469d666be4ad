"""Builds the parts of a server from the settings: database, models, audio, trunks, SIP, egress, metrics."""
