"""The sandboxed process that reads documents: start, protocol, worker."""
