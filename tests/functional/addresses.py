"""Send requests to every URL of the site, with values for placeholders; roll changes back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from django.conf import settings
from django.db import transaction
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from tests.functional.access_table import PATHS, Route

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
UNSAFE = ("POST", "PUT", "PATCH", "DELETE")


def routes(resolver: Any = None, prefix: str = "") -> Iterator[str]:
    """Return the patterns of all URLs of the site."""
    for entry in (resolver or get_resolver()).url_patterns:
        here = prefix + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from routes(entry, here)
        elif isinstance(entry, URLPattern):
            yield here


def is_api(address: str) -> bool:
    return address.startswith("api/")


def template_of(address: str, route: Route) -> str:
    """Return the URL with its query, and with parts replaced by those of `PATHS` and the route."""
    parts = {**PATHS, **route.path}
    path = "/" + re.sub(r"<(?:\w+:)?(\w+)>", lambda found: parts[found[1]], address)
    return path + (f"?{route.query}" if route.query else "")


def words_of(address: str, route: Route) -> list[str]:
    """Return the placeholders in a request's URL, query and body."""
    asked = template_of(address, route) + json.dumps(route.body)
    return sorted(set(re.findall(r"\{(\w+)\}", asked)))


def fill(value: Any, words: Mapping[str, str]) -> Any:
    """Replace the placeholders in braces."""
    if isinstance(value, dict):
        return {key: fill(item, words) for key, item in value.items()}
    if isinstance(value, list):
        return [fill(item, words) for item in value]
    return value.format(**words) if isinstance(value, str) else value


def send(
    client: Client,
    method: str,
    address: str,
    route: Route,
    words: Mapping[str, str],
    **headers: str,
) -> Any:
    """Send a request; the caller rolls back its changes."""
    path = fill(template_of(address, route), words)
    content: dict[str, Any] = {}
    body = fill(route.body if route.body is not None else {}, words)
    if method in UNSAFE and is_api(address):
        content = {"data": json.dumps(body), "content_type": "application/json"}
    if method == "POST" and not is_api(address):
        return client.post(path, body, headers=headers)
    return client.generic(method, path, headers=headers, **content)


def ask(
    client: Client,
    method: str,
    address: str,
    route: Route,
    words: Mapping[str, str],
    **headers: str,
) -> Any:
    """Send a request and roll back its changes."""
    with transaction.atomic():
        answer = send(client, method, address, route, words, **headers)
        transaction.set_rollback(True)
    return answer


def bearer(secret: str) -> Client:
    headers = {"Authorization": f"Bearer {secret}"}
    return Client(raise_request_exception=False, headers=headers)


def session(key: str, **options: Any) -> Client:
    client = Client(raise_request_exception=False, **options)
    client.cookies[settings.SESSION_COOKIE_NAME] = key
    return client


def said(answer: Any) -> str:
    """Return body and headers of an answer."""
    headers = " ".join(f"{name}: {value}" for name, value in answer.headers.items())
    body = b"".join(answer.streaming_content) if answer.streaming else answer.content
    return headers + body.decode(errors="replace")
