"""A receiver of webhooks for tests, which keeps the requests that reach it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import ClassVar


@dataclass
class Hook:
    """The requests as (path, headers, body), and the reply to them."""

    port: int = 0
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    status: int = 204
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"


class _Request(BaseHTTPRequestHandler):
    hook: ClassVar[Hook]

    def do_POST(self) -> None:
        """Keep the request and reply."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        names = {name.lower(): value for name, value in self.headers.items()}
        self.hook.requests.append((self.path, names, body))
        self.send_response(self.hook.status)
        for name, value in self.hook.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(self.hook.body)

    do_GET = do_POST  # noqa: N815 - the name that http.server calls

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def hook_server() -> Iterator[Hook]:
    """Run a receiver on a free port of this machine."""
    hook = Hook()
    request = type("Request", (_Request,), {"hook": hook})
    with ThreadingHTTPServer(("127.0.0.1", 0), request) as server:
        hook.port = server.server_address[1]
        thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield hook
        server.shutdown()
        thread.join()
