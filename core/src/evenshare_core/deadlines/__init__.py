"""UniSched's Selector: one program plans jobs with deadlines, best-effort jobs and profilers."""
