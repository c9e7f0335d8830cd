"""The error that ends a start; the user reads its text as one line."""


class StartError(Exception):
    """The portal cannot start; the text states the remedy in one line."""
