"""The command line for users, and the runtime for use inside a job.

Both use only the standard library, so they install into any environment with Python 3.9 or newer.
"""

__version__ = "0.1.0"
