"""Knowledge documents: rows, files, contents, passages."""
