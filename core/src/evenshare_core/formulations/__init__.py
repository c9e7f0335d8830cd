"""Programs of sharing rules and plans. Only this package and `fairness` import solvers."""
