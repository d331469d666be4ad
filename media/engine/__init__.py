"""The audio engine: the tick of every call and what it drives."""
