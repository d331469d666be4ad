"""The JSON shapes of requests and responses, resource by resource."""
