"""Speech to text: local engines, two-pass recognition."""
