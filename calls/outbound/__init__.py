"""Outbound calls: dial permissions, transfer permissions, pacing, the dialer, the audit log."""
