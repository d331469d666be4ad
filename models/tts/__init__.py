"""Text to speech: local engines, caches, word timing."""
