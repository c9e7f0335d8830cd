"""Forms of the console: what was typed, and what it means."""
