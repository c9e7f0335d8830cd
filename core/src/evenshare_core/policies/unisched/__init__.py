"""UniSched: one program for jobs with deadlines and best-effort jobs; deadlines get an answer."""
