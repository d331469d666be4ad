"""Organizations: API keys, balances, quotas, audit log, idempotent responses."""
