"""Acoustic echo of the agent's voice: delay estimation, cancellation, and the guard of turn taking against it."""
