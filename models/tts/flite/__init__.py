"""Text to speech by Flite."""
