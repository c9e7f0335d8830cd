"""Evenshare for its users: the command line and the runtime inside a job.

Standard library only, so that it installs into any environment with Python 3.9 or newer.
"""

__version__ = "0.1.0"
