"""Forms of the console: typed texts and their values."""
