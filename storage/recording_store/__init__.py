"""Where recordings are: on the local disk, in a folder that nodes share, or in a bucket of an S3-compatible server."""
