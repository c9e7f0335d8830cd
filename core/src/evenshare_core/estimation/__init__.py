"""UniSched's estimator: speeds, iterations and durations of training jobs, each with its error."""
