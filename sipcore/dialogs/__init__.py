"""Calls: INVITE dialogs, outbound INVITEs and their failover."""
