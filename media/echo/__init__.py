"""Acoustic echo: delay estimation, cancellation, protection of turn taking."""
