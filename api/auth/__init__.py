"""Authentication of API clients: API keys, signed links and rate limits."""
