"""HTTP: the /v1 resources, middleware and OpenAPI."""
