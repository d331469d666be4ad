"""The sandboxed process that reads documents."""
