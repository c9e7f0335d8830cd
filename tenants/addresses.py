"""From where somebody comes, as limits count it."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

# What a provider gives to one customer at least: whoever has one IPv6 address has 2**64 of them.
PREFIX_BITS = 64
LENGTH_MAX = 45


def client_prefix(address: str) -> str:
    """Return what counts as one client: an IPv4 address, the /64 of an IPv6 address.

    An IPv4 address written as IPv6 (`::ffff:192.0.2.1`) is the IPv4 address. What is no address
    (a socket's name, nothing) stays as it is, cut to `LENGTH_MAX` characters.
    """
    try:
        known = ip_address(address.strip())
    except ValueError:
        return address.replace("\x00", "")[:LENGTH_MAX]
    if isinstance(known, IPv4Address):
        return str(known)
    if known.ipv4_mapped is not None:
        return str(known.ipv4_mapped)
    return str(IPv6Network((IPv6Address(int(known)), PREFIX_BITS), strict=False))
