"""The base of all domain values: immutable, typed, with one canonical byte form."""

import hashlib
from typing import Any, ClassVar, TypeVar

import msgspec

ValueT = TypeVar("ValueT", bound="Value")


class Value(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A frozen record; encoded as an array in field order, so that bytes are canonical.

    `newest` names the last fields, tuples, in order: those added after bytes of the type had been
    stored. Empty ones at the end are left out of the bytes, so that older bytes do not change.
    """

    newest: ClassVar[tuple[str, ...]] = ()


_encoder = msgspec.json.Encoder(order="deterministic")
_EMPTY_LAST = b",[]]"


def canonical_bytes(value: Any) -> bytes:
    """Return the one JSON encoding of a value: fields in order, keys sorted, no spaces.

    These bytes are stored, hashed and compared on replay. Source: architecture, "Snapshots".
    """
    data = _encoder.encode(value)
    if isinstance(value, Value):
        for name in reversed(value.newest):
            if getattr(value, name):
                break
            data = data.removesuffix(_EMPTY_LAST) + b"]"
    return data


def named(value: Any) -> Any:
    """Return plain data with field names, for people and other programs.

    Canonical bytes have no names; this form is never stored, hashed or read back.
    """
    if isinstance(value, Value):
        return {name: named(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {key: named(row) for key, row in value.items()}
    if isinstance(value, list | tuple):
        return [named(row) for row in value]
    return value


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 of canonical bytes as 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def decode(data: bytes, value_type: type[ValueT]) -> ValueT:
    """Return the value of canonical bytes.

    Raises:
        msgspec.ValidationError: the bytes are not of this type (another schema version).
    """
    return msgspec.json.decode(data, type=value_type)
