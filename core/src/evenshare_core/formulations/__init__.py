"""Linear programs of the sharing rules, pure; the only importers of solvers."""
