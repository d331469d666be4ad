"""Speech to text by PocketSphinx."""
