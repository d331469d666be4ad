"""What every engine uses of the machine: processors, worker threads, protobuf."""
