"""Login, logout, and the user's account."""
