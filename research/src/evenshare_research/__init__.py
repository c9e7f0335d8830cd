"""What papers compare with, apart from the portal that needs none of it."""
