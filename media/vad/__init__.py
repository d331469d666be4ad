"""Voice activity detection on the caller's audio."""
