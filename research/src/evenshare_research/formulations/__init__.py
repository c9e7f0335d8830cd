"""Programs that baselines solve, and other solvers of programs that the core solves faster."""
