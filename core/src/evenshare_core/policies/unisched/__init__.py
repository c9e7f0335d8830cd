"""UniSched: jobs with deadlines and best-effort jobs in one program, with an answer for each."""
