"""Programs of sharing rules and plans, pure. Only these and `fairness` import solvers."""
