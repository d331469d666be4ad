"""Documents: ingestion, indexing, search, and passages given to the language model."""
