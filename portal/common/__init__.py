"""Code shared by pages of several areas: access, clocks, forms, and texts."""
