"""What papers define or compare with, and a portal does not need to decide its rounds."""
