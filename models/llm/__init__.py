"""Language models: llama.cpp, fallback, lazy loading, context window."""
