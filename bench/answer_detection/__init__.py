"""Benchmark of answer detection: made calls through voice activity, recognizer, tone and answer detection."""
