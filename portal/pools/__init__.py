"""Pages of pools: nodes, throughput, prices."""
