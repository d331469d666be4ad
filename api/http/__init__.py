"""HTTP building blocks that know nothing of the resources: ranges, timeouts, CORS, streamed responses."""
