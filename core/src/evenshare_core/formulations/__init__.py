"""Linear programs of sharing rules, pure. Solvers are imported here and in `fairness.solver`."""
