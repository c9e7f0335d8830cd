"""Ports that a cluster reserves for as long as it runs."""

from __future__ import annotations

import socket
from collections.abc import Iterable

from .config import HOST


class ReservedPorts:
    """A port for each name.

    A bound socket that never listens reserves the port, even while its daemon is down. The daemon
    can still bind it, because both set SO_REUSEADDR.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._sockets = {name: _bound() for name in names}

    @property
    def numbers(self) -> dict[str, int]:
        return {name: held.getsockname()[1] for name, held in self._sockets.items()}

    def close(self) -> None:
        for held in self._sockets.values():
            held.close()

    def __enter__(self) -> ReservedPorts:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _bound() -> socket.socket:
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((HOST, 0))
    return held
