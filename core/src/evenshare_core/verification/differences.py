"""Readable differences between two values of one type: the first differing place of each field."""

from typing import Any

import msgspec

MAX_PLACES = 3


def differences(stored: Any, again: Any, most: int = MAX_PLACES) -> tuple[str, ...]:
    """Return the places where two structs or JSON objects differ, at most one for each field.

    For example `prices[0].price_micro: 5 there, 6 here`; "there" is `stored`.
    """
    places = []
    before, after = _fields(stored), _fields(again)
    for name in dict.fromkeys((*before, *after)):
        place = _first(name, before.get(name), after.get(name))
        if place:
            places.append(place)
    left = len(places) - most
    return (*places[:most], *([f"{left} more fields"] if left > 0 else []))


def _fields(value: Any) -> dict[str, Any]:
    if isinstance(value, msgspec.Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    return dict(value) if isinstance(value, dict) else {}


def _first(path: str, stored: Any, again: Any) -> str:
    """Return the first place at or below `path` where the two differ; "" if they are equal."""
    if type(stored) is type(again):
        if isinstance(stored, (msgspec.Struct, dict)):
            before, after = _fields(stored), _fields(again)
            names = dict.fromkeys((*before, *after))
            below = (_first(f"{path}.{name}", before.get(name), after.get(name)) for name in names)
            return next(filter(None, below), "")
        if isinstance(stored, (list, tuple)):
            if len(stored) != len(again):
                return f"{path}: {len(stored)} rows there, {len(again)} here"
            rows = enumerate(zip(stored, again, strict=True))
            return next(filter(None, (_first(f"{path}[{n}]", *pair) for n, pair in rows)), "")
    return "" if stored == again else f"{path}: {_short(stored)} there, {_short(again)} here"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
