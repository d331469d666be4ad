"""Organizations with their balances, quotas and retention, API keys, and the audit log."""
