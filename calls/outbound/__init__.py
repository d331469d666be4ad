"""Outbound calls: which destinations may be dialled, pacing, the audit log."""
