"""Webhook deliveries: rows, claims, destinations."""
