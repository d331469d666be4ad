"""Knowledge: ingestion of documents, indexing, search, prefetch, and passages in the language model's context."""
