"""Webhook delivery: signing, concurrency for each receiver, retries."""
