"""The API reference at `/docs`: Swagger UI, reading the OpenAPI document."""
