"""Calls: rows, recordings, SIP traces, pending ends, retention."""
