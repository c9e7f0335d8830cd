"""Jobs: lists, one job, why it waits, when it may start."""
