"""End-of-turn detection from words and from sound."""
