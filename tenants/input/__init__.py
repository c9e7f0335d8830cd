"""What people and programs send, read in one way: what is wrong, how values are read. Pure."""
