"""`evenshare statement ...`: recomputed charges and incomes. It needs evenshare-core."""

from __future__ import annotations

import argparse

from .api import Transport
from .terminal import Terminal
from .verify import with_core


def statement_verify(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    return int(with_core("verify_statement").verify(options, client, screen))
