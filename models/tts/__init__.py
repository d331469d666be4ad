"""Text to speech: local engines, text normalization, caches, word timing."""
