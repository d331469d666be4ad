"""Model files: known models, download, import, the store."""
