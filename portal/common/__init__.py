"""What pages of several areas share: access, clocks, forms, and texts."""
