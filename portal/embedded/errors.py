"""The one error that ends a start; its text is the line that the user reads."""


class StartError(Exception):
    """The portal cannot start, and what to do about it, in one line."""
