"""Views of login, logout and the user's account."""
