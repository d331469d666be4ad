"""DTMF: keys and in-band tone detection."""
