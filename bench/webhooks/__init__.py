"""Webhook delivery while its processes are killed."""
