"""Where the ranks of a lease meet: a port by the lease's name, so that two jobs hardly ever
choose the same on a node, and whoever looks knows it before."""

import hashlib
import socket
from collections.abc import Callable, Iterator

# Above services, below what kernels hand out to whoever asks for any port (from 32768).
FIRST_PORT, PORTS = 10_000, 20_000
TRIES = 64


def ports_of(name: str) -> Iterator[int]:
    """The ports that a lease takes the first free one of."""
    for number in range(TRIES):
        digest = hashlib.sha256(f"{name} {number}".encode()).digest()
        yield FIRST_PORT + int.from_bytes(digest[:8], "big") % PORTS


def is_free(port: int) -> bool:
    """Whether nobody listens there on this node, now."""
    with socket.socket() as probe:
        # As servers do: what is left of an ended connection is in nobody's way.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def free_port_of(name: str, *, is_free: Callable[[int], bool] = is_free) -> int:
    """The first of a lease's ports that is free here; where none is, its first."""
    ports = list(ports_of(name))
    return next((port for port in ports if is_free(port)), ports[0])


def single_node_facts(name: str) -> dict[str, str]:
    """The environment of a program that has one node alone, as that of gangs names it."""
    return {
        "NNODES": "1",
        "NODE_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(next(ports_of(name))),
    }
