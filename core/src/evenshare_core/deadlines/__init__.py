"""UniSched's Selector: deadlines, best-effort jobs and profilers in one program, pure."""
