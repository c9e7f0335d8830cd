"""The port at which the ranks of a lease meet, derived from the lease's name.

Two jobs on a node rarely choose the same port, and every rank can compute it in advance.
"""

import hashlib
import socket
from collections.abc import Callable, Iterator

# Above the ports of services, and below the ephemeral ports of kernels (from 32768).
FIRST_PORT, PORTS = 10_000, 20_000
TRIES = 64


def ports_of(name: str) -> Iterator[int]:
    """Yield the candidate ports of a lease, which uses the first free one."""
    for number in range(TRIES):
        digest = hashlib.sha256(f"{name} {number}".encode()).digest()
        yield FIRST_PORT + int.from_bytes(digest[:8], "big") % PORTS


def is_free(port: int) -> bool:
    """Return whether no process listens on the port of this node now."""
    with socket.socket() as probe:
        # As servers do, ignore closed connections that still occupy the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def free_port_of(name: str, *, is_free: Callable[[int], bool] = is_free) -> int:
    """Return the first of a lease's ports that is free on this node, or the first if none is."""
    ports = list(ports_of(name))
    return next((port for port in ports if is_free(port)), ports[0])


def single_node_facts(name: str) -> dict[str, str]:
    """Return the environment variables of a gang for a program that runs on one node."""
    return {
        "NNODES": "1",
        "NODE_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(next(ports_of(name))),
    }
