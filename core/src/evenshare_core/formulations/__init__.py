"""Programs of sharing rules and plans, pure. Only this package and `fairness` import solvers."""
