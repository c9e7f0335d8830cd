"""An OpenID Connect provider for tests, and a browser that signs in there.

Its answers can be spoiled: `metadata` is added to the discovery document, and `spoil` makes another
ID token from the provider's. `userinfo` replaces the answer of that endpoint.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, make_server

import oidc_provider_mock
import requests
from django.conf import LazySettings
from django.test import Client

Claims = dict[str, Any]


@dataclass
class Provider:
    """A running provider, and changes of what it answers."""

    issuer: str = ""
    metadata: Claims = field(default_factory=dict)
    spoil: Callable[[str], str] | None = None
    userinfo: Claims | None = None

    def add(self, subject: str, **claims: str) -> None:
        """Make a person known, with these claims."""
        requests.put(f"{self.issuer}/users/{subject}", json=claims, timeout=10).raise_for_status()

    def answer(self, portal: Client, subject: str, *, begin: str = "/login/openid/") -> str:
        """Sign in at the provider; return the path and query to which it redirects."""
        asked = portal.get(begin)
        assert asked.status_code == 302, asked.status_code
        return self.consent(asked.headers["Location"], subject)

    def consent(self, url: str, subject: str) -> str:
        """Accept the request of a URL as a person; "" denies it."""
        form = {"sub": subject} if subject else {"action": "deny"}
        said = requests.post(url, data=form, allow_redirects=False, timeout=10)
        parts = urlsplit(said.headers["Location"])
        return f"{parts.path}?{parts.query}"


def trust(settings: LazySettings, issuer: str, site: str) -> None:
    """Let the portal at `site` accept people of this provider, until the test ends."""
    settings.OIDC_ISSUER = issuer
    settings.OIDC_CLIENT_ID = "evenshare"
    settings.OIDC_CLIENT_SECRET = "a secret of the client"
    settings.OIDC_NAME = "Example University"
    settings.SITE_URL = site


class _Quiet(WSGIRequestHandler):
    def log_message(self, *args: Any) -> None:
        """Write nothing."""


@contextmanager
def running_provider() -> Iterator[Provider]:
    """Yield a provider on a free port of this machine."""
    provider, app = Provider(), oidc_provider_mock.app()

    def spoiled(environ: Claims, start: Any) -> Iterable[bytes]:
        heads: list[Any] = []
        chunks = app(environ, lambda *head: heads.append(head))
        body = b"".join(chunks)
        path = environ["PATH_INFO"]
        if path.endswith("/openid-configuration"):
            body = json.dumps(json.loads(body) | provider.metadata).encode()
        elif path == "/oauth2/token" and provider.spoil is not None:
            said = json.loads(body)
            said["id_token"] = provider.spoil(said["id_token"])
            body = json.dumps(said).encode()
        elif path == "/userinfo" and provider.userinfo is not None:
            body = json.dumps(provider.userinfo).encode()
        status, headers = heads[0][:2]
        kept = [(name, value) for name, value in headers if name.lower() != "content-length"]
        start(status, [*kept, ("Content-Length", str(len(body)))])
        return [body]

    server = make_server("127.0.0.1", 0, spoiled, handler_class=_Quiet)
    provider.issuer = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
