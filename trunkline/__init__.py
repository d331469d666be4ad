"""The program: command line, start-up and shutdown order, the demo call."""
