"""Builds the parts of a server from the settings: database, models, audio, trunks, SIP, outbound HTTP, metrics."""
