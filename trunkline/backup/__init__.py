"""Backup and restore of a data directory."""
