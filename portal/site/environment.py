"""Typed values from the environment; an error names the variable."""

import json
import os
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

# Hosts of this machine, which may use plain HTTP in the demo.
LOOPBACK = {"localhost", "127.0.0.1", "::1"}
TRUE, FALSE = {"1", "true", "yes", "on"}, {"", "0", "false", "no", "off"}


class SettingError(Exception):
    """An environment variable is missing or invalid."""


def text(name: str, default: str | None = None) -> str:
    value = os.environ.get(name) or default
    if value is None:
        raise SettingError(f"{name} must be set")
    return value


def whole(name: str, default: int) -> int:
    value = os.environ.get(name) or str(default)
    if not value.isdecimal():
        raise SettingError(f"{name} must be a whole number, not {value!r}")
    return int(value)


def flag(name: str, *, default: bool = False) -> bool:
    value = os.environ.get(name, "1" if default else "0").lower()
    if value not in TRUE | FALSE:
        raise SettingError(f"{name} must be 1 or 0, not {value!r}")
    return value in TRUE


def listed(name: str, default: str = "") -> list[str]:
    return [part.strip() for part in os.environ.get(name, default).split(",") if part.strip()]


def fields(name: str) -> dict[str, Any]:
    """Return the variable as a JSON object; empty if it is not set."""
    try:
        value = json.loads(os.environ.get(name) or "{}")
    except ValueError:
        value = None
    if not isinstance(value, dict):
        # The error does not quote the value, which may contain a password.
        raise SettingError(f'{name} must be a JSON object, such as {{"bucket_name": "rounds"}}')
    return value


def database(name: str, url: str) -> dict[str, object]:
    """Return Django's settings for `postgres://user:password@host:port/name?host=/folder`."""
    parts = urlsplit(url)
    if parts.scheme not in ("postgres", "postgresql") or not parts.path.strip("/"):
        raise SettingError(f"{name} must look like postgres://user@host/database")
    options = dict(parse_qsl(parts.query))
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": options.pop("host", "") or unquote(parts.hostname or ""),
        "PORT": str(parts.port or ""),
        "OPTIONS": options,
    }


def mail_server(name: str, url: str) -> dict[str, object]:
    """Return Django's settings for `smtp://user:password@host:port`; without host: no mail.

    `smtps` is TLS from the start, `smtp+starttls` after STARTTLS.
    """
    parts = urlsplit(url)
    ports = {"smtp": 25, "smtps": 465, "smtp+starttls": 587}
    if parts.scheme not in ports:
        # The error does not quote the value, which may contain a password.
        raise SettingError(f"{name} must look like smtp+starttls://user:password@host:587")
    return {
        "EMAIL_HOST": parts.hostname or "",
        "EMAIL_PORT": parts.port or ports[parts.scheme],
        "EMAIL_HOST_USER": unquote(parts.username or ""),
        "EMAIL_HOST_PASSWORD": unquote(parts.password or ""),
        "EMAIL_USE_SSL": parts.scheme == "smtps",
        "EMAIL_USE_TLS": parts.scheme == "smtp+starttls",
        "EMAIL_TIMEOUT": 10,
    }


_DOMAIN = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)*(:[1-9][0-9]{0,4})?")


def session_domain(name: str, value: str, hosts: Iterable[str]) -> str:
    """Return the domain of sessions, such as `sessions.example.org`; empty for "off".

    `hosts`: the portal's own. Cookies that a session sets for its domain must not reach them.
    """
    value = "" if value == "off" else value.lower()
    if value and not _DOMAIN.fullmatch(value):
        raise SettingError(f"{name} must look like sessions.example.org, not {value!r}")
    domain = value.partition(":")[0]
    for host in (one.lstrip(".").lower() for one in hosts):
        if domain and (host == domain or host.endswith(f".{domain}")):
            raise SettingError(f"{name} must not be the portal's host {host!r}, or above it")
    return value


def issuer(name: str, value: str, *, production: bool) -> str:
    """Return the unchanged issuer of an OpenID Connect provider; empty for "none"."""
    if value == "none":
        return ""
    parts = urlsplit(value)
    plain = parts.scheme == "http" and parts.hostname in LOOPBACK and not production
    if not (parts.hostname and (parts.scheme == "https" or plain)) or parts.query:
        raise SettingError(f"{name} must look like https://login.example.org, not {value!r}")
    return value


def port_range(name: str, value: str) -> range:
    """Return the ports of `first-last`, from 1024 on."""
    first, _, last = value.partition("-")
    if not (first.isdecimal() and last.isdecimal() and 1024 <= int(first) <= int(last) < 65536):
        raise SettingError(f"{name} must be two ports such as 42000-42999, not {value!r}")
    return range(int(first), int(last) + 1)
