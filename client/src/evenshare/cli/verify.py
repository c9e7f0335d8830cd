"""`evenshare round ...`: recompute decisions locally. Verification needs evenshare-core."""

from __future__ import annotations

import argparse
import importlib
import sys
from types import ModuleType

from evenshare.errors import UsageError

from .api import Transport
from .terminal import Terminal

NEEDS = (3, 11)
INSTALL = "pip install 'evenshare[verify]'"
# Copies the values of evenshare_core.verification.verdict.Gap, which might not be installed.
GAPS = (
    "bundle", "own-rows", "names", "version", "certificate", "before", "superseded", "head",
    "rows", "limit", "rounds",
)  # fmt: skip # a table


def round_verify(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    return int(with_core("verify_rounds").verify(options, client, screen))


def round_pin(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    return int(with_core("verify_pins").pin(options, client, screen))


def with_core(module: str) -> ModuleType:
    """Import a module that needs evenshare-core; if that is missing, say how to install it."""
    if sys.version_info < NEEDS:
        here = ".".join(map(str, sys.version_info[:2]))
        raise UsageError(f"verifying needs Python 3.11 or newer, this is {here}; there: {INSTALL}")
    try:
        return importlib.import_module(f"{__package__}.{module}")
    except ImportError as problem:
        if (problem.name or "").partition(".")[0] in ("", "evenshare"):
            raise
        raise UsageError(f"verifying needs {problem.name}: {INSTALL}") from None
