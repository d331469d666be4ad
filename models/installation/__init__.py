"""Looking after models: what there is, downloads, imports, checks, removal, and test requests to remote ones."""
