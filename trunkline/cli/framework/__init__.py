"""What all commands share: how they are declared, found and run, and the types of their arguments."""
