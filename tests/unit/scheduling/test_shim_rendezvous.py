"""Test the port at which the ranks of a lease meet."""

import socket

from scheduling.engine.executors.shim.rendezvous import (
    FIRST_PORT,
    PORTS,
    free_port_of,
    is_free,
    ports_of,
    single_node_facts,
)


class TestLeasePort:
    def test_is_stable_for_lease(self) -> None:
        assert list(ports_of("7-1")) == list(ports_of("7-1"))
        assert single_node_facts("7-1")["MASTER_PORT"] == str(next(ports_of("7-1")))

    def test_rarely_collides(self) -> None:
        ports = {next(ports_of(f"{job}-1")) for job in range(100)}
        assert len(ports) >= 98

    def test_is_below_ephemeral_ports(self) -> None:
        ports = [port for job in range(100) for port in ports_of(f"{job}-1")]
        assert min(ports) >= FIRST_PORT
        assert max(ports) < FIRST_PORT + PORTS < 32768

    def test_is_first_free_candidate(self) -> None:
        first, second, *_ = ports_of("7-1")
        assert free_port_of("7-1", is_free=lambda port: port != first) == second
        assert free_port_of("7-1", is_free=lambda _: False) == first

    def test_is_not_free_if_in_use(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            assert not is_free(server.getsockname()[1])
