"""Test that webhooks reach no inner server, whatever address a person enters."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from scheduling.outbox import post as posting
from scheduling.outbox.post import RESPONSE_BYTES, post
from scheduling.outbox.targets import TargetRefusedError, TargetRules, is_denied, read_target
from tests.hook_server import Hook, hook_server

# Addresses of the canary on port P of 127.0.0.1, and of other inner servers, in many notations.
# Names under `test` resolve as `NAMES` states; the resolver understands numbers as the C library.
PAYLOADS = (
    *("http://127.0.0.1:P/", "https://127.0.0.1:P/", "http://127.1:P/", "http://127.0.1:P/"),
    *("http://2130706433:P/", "http://0x7f000001:P/", "http://0x7f.0.0.1:P/", "http://0177.0.0.1:P/"),
    *("http://017700000001:P/", "http://127.0.0.1.:P/", "http://0:P/", "http://0.0.0.0:P/"),
    *("http://127.255.255.254:P/", "http://127.0.0.2:P/", "http://localhost:P/", "http://LOCALHOST:P/"),
    *("http://localhost.:P/", "http://x.localhost:P/", "http://[::1]:P/", "http://[::]:P/"),
    *("http://[::ffff:127.0.0.1]:P/", "http://[::ffff:7f00:1]:P/", "http://[0:0:0:0:0:0:0:1]:P/"),
    *("http://[64:ff9b::7f00:1]:P/", "http://[64:ff9b:1::7f00:1]:P/", "http://[2002:7f00:1::]:P/"),
    *("http://[2001:0:7f00:1::]:P/", "http://[fe80::1%25lo]:P/", "http://[fe80::1]:P/"),
    *("http://[fc00::1]:P/", "http://[ff02::1]:P/", "http://[::127.0.0.1]:P/", "http://[100::1]:P/"),
    *("http://10.0.0.1:P/", "http://172.16.0.1:P/", "http://192.168.1.1:P/", "http://100.64.0.1:P/"),
    *("http://169.254.169.254:P/latest/meta-data/", "http://224.0.0.1:P/", "http://255.255.255.255:P/"),
    *("http://user@127.0.0.1:P/", "http://example.org@127.0.0.1:P/", "http://127.0.0.1:P@example.org/"),
    *("http://example.org\\@127.0.0.1:P/", "http:\\\\127.0.0.1:P/", "http://127.0.0.1:P\\.example.org/"),
    *("http://①②⑦.⓪.⓪.①:P/", "http://127。0。0。1:P/", "http://127.0.0.1:P/\r\nHost: x"),
    *("http://127.0.0.1%00.example.org:P/", "http://127.0.0.1 .example.org:P/", "http://[::1:P/"),
    *("ftp://127.0.0.1:P/", "file:///etc/passwd", "gopher://127.0.0.1:P/_x", "//127.0.0.1:P/"),
    *("http:127.0.0.1:P/", "http:///127.0.0.1:P/", "dict://127.0.0.1:P/", "unix:///run/x.sock"),
    *("http://loopback.test:P/", "http://rebind.test:P/", "http://mixed.test:P/", "http://v6.test:P/"),
    *("http://private.test:P/", "http://nat64.test:P/", "http://shared.test:P/", "http://none.test:P/"),
)  # fmt: skip
PUBLIC = "93.184.215.14"
NAMES = {
    "loopback.test": ["127.0.0.1"],
    "mixed.test": [PUBLIC, "127.0.0.1"],
    "v6.test": ["::1"],
    "private.test": ["10.1.2.3"],
    "nat64.test": ["64:ff9b::7f00:1"],
    "shared.test": ["100.127.255.254"],
    "none.test": [],
}


class Resolver:
    """A name server whose answer for `rebind.test` changes after the first query."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host."""
        self.asked.append(host)
        if host == "rebind.test":
            return [PUBLIC] if self.asked.count(host) == 1 else ["127.0.0.1"]
        if host in NAMES:
            return NAMES[host]
        try:
            rows = socket.getaddrinfo(host, port, flags=socket.AI_NUMERICHOST)
        except OSError:
            return ["127.0.0.1"]  # the worst answer to any other name
        return [str(row[4][0]) for row in rows]


@pytest.fixture(scope="module")
def canary() -> Iterator[Hook]:
    with hook_server() as hook:
        yield hook


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses to which connections are made; only connections to this machine succeed."""
    seen: list[str] = []
    connect = socket.create_connection

    def local(address: tuple[str, int], **options: Any) -> socket.socket:
        seen.append(address[0])
        if not ip_address(address[0]).is_loopback:
            raise ConnectionRefusedError
        return connect(address, **options)

    monkeypatch.setattr(socket, "create_connection", local)
    return seen


class TestPost:
    def test_reaches_no_canary_for_sixty_payloads_even_if_the_site_allows_http(
        self, canary: Hook, connected: list[str]
    ) -> None:
        assert len(PAYLOADS) >= 60
        for payload in PAYLOADS:
            resolver = Resolver()
            url = payload.replace("P", str(canary.port), 1)
            reply = post(url, b"{}", {}, TargetRules(http=True), look_up=resolver)
            assert reply.error, payload
            assert len(resolver.asked) <= 1, payload
        assert canary.requests == []
        # Only the name whose first answer is public gets a connection: to that address.
        assert connected == [PUBLIC]

    def test_reaches_the_canary_if_the_site_allows_its_network(
        self, canary: Hook, connected: list[str]
    ) -> None:
        canary.requests.clear()
        rules = TargetRules.of(["127.0.0.1/32"])
        assert post(canary.url + "?a=b", b"body", {"x-a": "1"}, rules).is_ok
        ((path, headers, body),) = canary.requests
        assert (path, body, headers["x-a"]) == ("/hook?a=b", b"body", "1")
        assert headers["host"] == f"127.0.0.1:{canary.port}"
        named = TargetRules.of(["ntfy.inner"])
        url = f"http://ntfy.inner:{canary.port}/"
        assert post(url, b"", {}, named, look_up=lambda *_: ["127.0.0.1"]).is_ok
        assert canary.requests[1][1]["host"] == f"ntfy.inner:{canary.port}"

    @pytest.mark.parametrize("denied", ["93.184.215.0/24", "127.0.0.1", "127.0.0.0/8"])
    def test_never_reaches_denied_networks(
        self, canary: Hook, connected: list[str], denied: str
    ) -> None:
        """Not even for a host that the site allows, and not if only one address is denied."""
        canary.requests.clear()
        inner = ["127.0.0.1", "mixed.test", "loopback.test"]
        rules = TargetRules.of(inner, denied=["2001:db8::/32", denied], http=True)
        for host in ("mixed.test", PUBLIC if denied[0] == "9" else "127.0.0.1"):
            assert post(
                f"http://{host}:{canary.port}/", b"", {}, rules, look_up=Resolver()
            ).error, host
        assert (canary.requests, connected) == ([], [])
        with pytest.raises(ValueError, match=r"'ntfy\.inner' is no network"):
            TargetRules.of([], denied=["ntfy.inner"])

    def test_does_not_follow_a_redirect(self, canary: Hook) -> None:
        canary.requests.clear()
        rules = TargetRules.of(["127.0.0.1"])
        with hook_server() as redirecting:
            for status in (301, 302, 303, 307, 308):
                redirecting.status, redirecting.headers = status, {"Location": canary.url}
                reply = post(redirecting.url, b"", {}, rules)
                assert (reply.status, reply.is_ok) == (status, False)
        assert canary.requests == []

    def test_reads_a_long_answer_only_in_part(
        self, canary: Hook, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read: list[int] = []
        receive = socket.socket.recv_into

        def counted(self: socket.socket, *args: Any) -> int:
            read.append(receive(self, *args))
            return read[-1]

        with hook_server() as long:
            long.status, long.body = 200, b"x" * (4 * RESPONSE_BYTES)
            monkeypatch.setattr(socket.socket, "recv_into", counted)
            reply = post(long.url, b"", {}, TargetRules.of(["127.0.0.1"]))
        assert reply.is_ok
        assert reply.start == "x" * 200
        client = [n for n in read if n > 1000]
        assert sum(client) < 3 * RESPONSE_BYTES

    def test_gives_up_a_receiver_that_sends_a_byte_now_and_then(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(posting, "TIMEOUT_S", 0.3)
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]

            def drip() -> None:
                with server.accept()[0] as peer:
                    try:
                        while True:
                            peer.sendall(b"H")
                            if stop.wait(0.05):
                                return
                    except OSError:
                        return

            stop = threading.Event()
            thread = threading.Thread(target=drip)
            thread.start()
            reply = post(f"http://127.0.0.1:{port}/", b"", {}, TargetRules.of(["127.0.0.1"]))
            stop.set()
            thread.join()
        assert reply.error == "No answer within 0 s."

    def test_does_not_tell_whether_an_inner_name_exists(self) -> None:
        errors = {
            post(f"https://{name}/", b"", {}, TargetRules(), look_up=Resolver()).error
            for name in ("none.test", "private.test", "mixed.test")
        }
        assert len(errors) == 1

    def test_gives_up_a_name_server_that_does_not_answer(
        self, monkeypatch: pytest.MonkeyPatch, connected: list[str]
    ) -> None:
        monkeypatch.setattr(posting, "TIMEOUT_S", 0.01)
        answers = threading.Event()

        def hang(_host: str, _port: int) -> list[str]:
            answers.wait(60)
            return [PUBLIC]

        reply = post("https://slow.test/", b"", {}, TargetRules(), look_up=hang)
        answers.set()
        assert reply.error == "No answer within 0 s."
        assert connected == []


class TestRules:
    @pytest.mark.parametrize(
        "address",
        ["93.184.215.14", "8.8.8.8", "100.63.255.255", "2606:2800:21f:cb07:6820:80da:af6b:8b2c"],
    )
    def test_allow_public_addresses(self, address: str) -> None:
        assert not is_denied(ip_address(address), TargetRules())

    def test_deny_what_the_standard_library_calls_public(self) -> None:
        for address in ("192.88.99.1", "2002:7f00:1::", "64:ff9b::7f00:1", "224.0.0.1", "ff0e::1"):
            assert is_denied(ip_address(address), TargetRules()), address

    def test_need_https_except_for_inner_hosts(self) -> None:
        rules = TargetRules.of(["ntfy.inner", "10.1.0.0/16"])
        for url in ("http://ntfy.inner/x", "http://10.1.2.3/", "https://example.org/"):
            assert read_target(url, rules).path
        for url in ("http://example.org/", "http://10.2.0.1/", "https://10.2.0.1/"):
            with pytest.raises(TargetRefusedError):
                read_target(url, rules)

    @pytest.mark.parametrize("entry", ["", "a b", "10.0.0.1/8", "-x.org", "300.1.1.1"])
    def test_refuse_an_entry_that_is_no_host_and_no_network(self, entry: str) -> None:
        with pytest.raises(ValueError, match="no host name"):
            TargetRules.of([entry])

    def test_read_names_and_networks(self) -> None:
        rules = TargetRules.of(["A.example.org.", "10.0.0.0/8", "::1"])
        assert rules.inner_names == {"a.example.org"}
        assert rules.inner_networks == (ip_network("10.0.0.0/8"), ip_network("::1"))
