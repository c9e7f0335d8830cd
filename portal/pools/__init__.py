"""Pages of pools: nodes, throughput, prices, starts, trades."""
