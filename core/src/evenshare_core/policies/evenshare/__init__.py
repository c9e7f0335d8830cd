"""The product's own policy: long-term deficit, short jobs first, preemption and defragmentation."""
