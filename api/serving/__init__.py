"""The HTTP server: listening, connections, middleware, dispatch of a request to its route."""
