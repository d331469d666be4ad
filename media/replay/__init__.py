"""Replay of recorded calls through the audio pipeline."""
