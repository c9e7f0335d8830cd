"""The clients that rate limits count, from their IP addresses."""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

# The smallest network of a customer: the owner of one IPv6 address usually has 2**64 of them.
PREFIX_BITS = 64
LENGTH_MAX = 45


def client_prefix(address: str) -> str:
    """Return the client of an IP address: the IPv4 address itself, or the /64 of an IPv6 address.

    An IPv4 address written as IPv6 (`::ffff:192.0.2.1`) is the IPv4 address. Other text (a socket's
    name, or empty) is returned unchanged, cut to `LENGTH_MAX` characters.
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
