"""Language models: local engines, fallback, context window."""
