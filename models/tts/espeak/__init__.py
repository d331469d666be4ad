"""Text to speech by eSpeak NG, in worker processes."""
