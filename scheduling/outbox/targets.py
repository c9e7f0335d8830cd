"""Which addresses a message may be sent to: no server inside of the site's own networks.

A person names a webhook's address, and the portal connects to it. The portal's host reaches servers
that the person does not: the metadata service of a cloud, databases, other tenants' machines. So
each address that a name resolves to must be public, or the site must have allowed it. The
properties `is_private` and `is_global` of `ipaddress` are not used, because they miss shared
address space, NAT64, 6to4 and multicast. Pure, except for `resolve`.
"""

import re
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final
from urllib.parse import SplitResult, urlsplit

from tenants.language import gettext_noop

Address = IPv4Address | IPv6Address
URL_MAX, NAME_MAX = 500, 253
_NO_HOST = gettext_noop("The address has an invalid host or port.")
# The same text for an inner address and for none, which hides the names of inner hosts.
_NOT_PUBLIC = gettext_noop("The host name has no public address.")
_INNER = gettext_noop("The host has a private address, which is not allowed.")
_PORTS: Final = {"http": 80, "https": 443}
_NAME = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)(\.(?!-)[a-z0-9-]{1,63}(?<!-))*\.?")

# IANA's registries of special-purpose addresses, and multicast.
_DENIED_V4: Final = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by the customers of a provider
        "127.0.0.0/8",  # this host
        "169.254.0.0/16",  # link-local: metadata services of clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # AMT
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
# The only range of public addresses. Outside of it are, among others, ::1, fe80::/10, fc00::/7,
# ff00::/8, IPv4-mapped addresses, and NAT64 (64:ff9b::/96 and 64:ff9b:1::/48).
_PUBLIC_V6: Final = IPv6Network("2000::/3")
_DENIED_V6: Final = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments: Teredo, ORCHID
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4, which contains an IPv4 address
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    )
)


class TargetRefusedError(Exception):
    """A message may not be sent to this address. The text is shown to the subscriber."""


@dataclass(frozen=True, slots=True)
class TargetRules:
    """The site's own rules.

    `inner`: names and networks inside of the site that are allowed. `denied`: networks that are
    never reached, not even by a name in `inner`. `http`: whether addresses without TLS are allowed.
    Plain HTTP to a name or an address in `inner` is always allowed.
    """

    inner_names: frozenset[str] = frozenset()
    inner_networks: tuple[IPv4Network | IPv6Network, ...] = ()
    denied: tuple[IPv4Network | IPv6Network, ...] = ()
    http: bool = False

    @classmethod
    def of(
        cls, inner: Iterable[str], *, denied: Iterable[str] = (), http: bool = False
    ) -> "TargetRules":
        """Read a list of host names, addresses and networks, and a list of denied networks.

        Raises:
            ValueError: an entry is invalid; the text names it.
        """
        names, networks = set(), []
        for entry in inner:
            try:
                networks.append(ip_network(entry))
            except ValueError:
                if not _NAME.fullmatch(entry.lower()) or entry.replace(".", "").isdigit():
                    raise ValueError(f"{entry!r} is no host name and no network") from None
                names.add(entry.lower().rstrip("."))
        return cls(frozenset(names), tuple(networks), networks_of(denied), http)


def networks_of(entries: Iterable[str]) -> tuple[IPv4Network | IPv6Network, ...]:
    """Read addresses and networks.

    Raises:
        ValueError: an entry is neither; the text names it.
    """
    networks = []
    for entry in entries:
        try:
            networks.append(ip_network(entry))
        except ValueError:
            raise ValueError(f"{entry!r} is no network") from None
    return tuple(networks)


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed address. `host`: a name, or an IP address without brackets."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def is_tls(self) -> bool:
        return self.scheme == "https"


def read_target(url: str, rules: TargetRules) -> Target:
    """Parse an address; refuse what could be read in two ways. No query of a name server.

    Raises:
        TargetRefusedError: the address is malformed, or its scheme or IP address is not allowed.
    """
    if not 1 <= len(url) <= URL_MAX or not url.isascii() or not url.isprintable() or " " in url:
        raise TargetRefusedError(gettext_noop("Enter an address such as https://example.org/hook."))
    if "\\" in url:
        raise TargetRefusedError(gettext_noop("The address has a backslash."))
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        raise TargetRefusedError(_NO_HOST) from None
    if parts.scheme not in _PORTS:
        raise TargetRefusedError(gettext_noop("The address must start with https://."))
    if "@" in parts.netloc:
        raise TargetRefusedError(
            gettext_noop("The address must not have a user name or a password.")
        )
    if port == 0:
        raise TargetRefusedError(_NO_HOST)
    _check_host(host, rules)
    if parts.scheme == "http" and not (rules.http or _is_inner(host, rules)):
        raise TargetRefusedError(gettext_noop("The address must start with https://."))
    return Target(parts.scheme, host, port or _PORTS[parts.scheme], _path_of(parts))


def allowed_addresses(
    target: Target, rules: TargetRules, resolve: Callable[[str, int], Sequence[str]]
) -> list[str]:
    """Resolve the host once; return its addresses to connect to.

    Raises:
        TargetRefusedError: there is no address, or one of them is not allowed.
    """
    addresses = [_parsed(text) for text in resolve(target.host, target.port)]
    if not addresses:
        raise TargetRefusedError(_NOT_PUBLIC)
    is_named = target.host.rstrip(".") in rules.inner_names
    for address in addresses:
        is_refused = address is None or is_denied(address, rules)
        if _is_in(address, rules.denied) or (is_refused and not is_named):
            raise TargetRefusedError(_NOT_PUBLIC)
    return [str(address) for address in addresses if address is not None]


def is_denied(address: Address, rules: TargetRules) -> bool:
    """Return whether an address is neither public nor allowed by the site."""
    if _is_in(address, rules.denied):
        return True
    if _is_in(address, rules.inner_networks):
        return False
    if isinstance(address, IPv4Address):
        return _is_in(address, _DENIED_V4)
    if address.scope_id is not None or address not in _PUBLIC_V6:
        return True
    return _is_in(address, _DENIED_V6)


def _is_in(address: Address | None, networks: Iterable[IPv4Network | IPv6Network]) -> bool:
    return address is not None and any(address in network for network in networks)


def resolve(host: str, port: int) -> list[str]:
    """Return the IP addresses of a host; empty for an unknown host."""
    try:
        rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys(str(row[4][0]) for row in rows))


def _check_host(host: str, rules: TargetRules) -> None:
    try:
        address = ip_address(host)
    except ValueError:
        name = host.rstrip(".")
        # A name of digits is an IPv4 address in an unusual notation, such as 2130706433.
        is_number = name.split(".")[-1].isdigit() or name.split(".")[-1].startswith("0x")
        if not _NAME.fullmatch(host) or len(host) > NAME_MAX or is_number:
            raise TargetRefusedError(_NO_HOST) from None
        is_here = name == "localhost" or name.endswith(".localhost")
        if is_here and name not in rules.inner_names:
            raise TargetRefusedError(gettext_noop("The host is this machine.")) from None
        return
    if is_denied(address, rules):
        raise TargetRefusedError(_INNER)


def _is_inner(host: str, rules: TargetRules) -> bool:
    if host.rstrip(".") in rules.inner_names:
        return True
    return _is_in(_parsed(host), rules.inner_networks)


def _parsed(text: str) -> Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def _path_of(parts: SplitResult) -> str:
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
