"""Changes by users to jobs, pools, nodes, sharing and simulations, and their previews."""
