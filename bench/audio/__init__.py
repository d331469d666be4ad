"""Benchmarks of the audio pump and of echo cancellation."""
