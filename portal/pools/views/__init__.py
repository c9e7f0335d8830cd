"""Views of pools and their prices."""
