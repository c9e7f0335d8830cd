"""UniSched: one program for best-effort jobs and jobs with deadlines, which get an answer."""
