"""Requests that one node passes on to another."""
