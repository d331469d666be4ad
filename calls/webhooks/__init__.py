"""Webhook delivery: signing, retries, concurrency for each receiver."""
