"""Routes as data, the validation of requests, and the OpenAPI document that is generated from the routes."""
