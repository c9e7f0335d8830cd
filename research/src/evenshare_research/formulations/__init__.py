"""Programs that only baselines solve."""
