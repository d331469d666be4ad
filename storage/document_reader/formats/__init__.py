"""One reader for each document format."""
