"""Outbound HTTP of tools and webhooks: address rules, concurrency, DNS lookups, and the client."""
