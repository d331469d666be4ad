"""Text normalization rules, language by language."""
