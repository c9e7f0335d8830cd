"""The command line and the SDK for users, and the runtime for use inside a job.

They use only the standard library, so they install into any environment with Python 3.9 or newer.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .errors import (
        ApiError,
        EvenshareError,
        InvalidRequestError,
        MissingError,
        NotAllowedError,
        RequestConflictError,
        TooManyRequestsError,
        UnauthenticatedError,
        UnreachableError,
        UsageError,
    )
    from .sdk.client import Client

__version__ = "0.1.0"
__all__ = [
    "ApiError",
    "Client",
    "EvenshareError",
    "InvalidRequestError",
    "MissingError",
    "NotAllowedError",
    "RequestConflictError",
    "TooManyRequestsError",
    "UnauthenticatedError",
    "UnreachableError",
    "UsageError",
]


def __getattr__(name: str) -> Any:
    """Load the SDK at its first use, so that a job's runtime starts without it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    place = ".sdk.client" if name == "Client" else ".errors"
    return getattr(import_module(place, __name__), name)
