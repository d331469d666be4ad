"""End-of-turn detection from text and from audio, and backchannels."""
