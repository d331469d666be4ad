"""Routes as data: how a request is validated, and the OpenAPI document that follows from them."""
