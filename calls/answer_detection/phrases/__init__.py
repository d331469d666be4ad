"""Phrases of machines and of people, per language."""
