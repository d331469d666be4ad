"""HTTP building blocks without resources: range requests, timeouts, CORS, streamed responses."""
