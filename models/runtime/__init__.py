"""Machine resources, worker threads and protobuf, for all engines."""
