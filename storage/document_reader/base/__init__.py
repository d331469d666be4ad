"""Shared by all document formats: blocks, limits, encodings, media types, errors."""
