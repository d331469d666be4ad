"""Outbound HTTP of tools and webhooks: which addresses may be reached, and how many requests at once."""
