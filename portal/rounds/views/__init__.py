"""Views of rounds."""
