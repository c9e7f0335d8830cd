"""Test that the OpenAPI schema is equivalent to the recorded one; components may have other names.

After an intended change, record it again, like answers (`tests/functional/rest_corpus.py`).
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from portal.site.api import document

RECORDED = Path(__file__).parents[1] / "golden" / "rest_description.json.gz"


def operations(described: dict[str, Any]) -> dict[str, Any]:
    """Return each operation with its references resolved."""
    components = described["components"]["schemas"]
    return {
        f"{method} {path}": _whole(operation, components, ())
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    }


def _whole(value: Any, components: dict[str, Any], inside: tuple[str, ...]) -> Any:
    if isinstance(value, list):
        return [_whole(item, components, inside) for item in value]
    if not isinstance(value, dict):
        return value
    name = str(value.get("$ref", "")).rpartition("/")[2]
    if name in inside:
        return {"again": inside[::-1].index(name)}
    if name:
        return _whole(
            {**components[name], **{key: value[key] for key in value if key != "$ref"}},
            components,
            (*inside, name),
        )
    whole = {key: _whole(item, components, inside) for key, item in value.items()}
    if isinstance(whole.get("required"), list):
        whole["required"] = sorted(whole["required"])
    return whole


def differences(old: Any, new: Any, where: str) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            yield from differences(old.get(key), new.get(key), f"{where} {key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from differences(before, after, f"{where} {index}")
    elif old != new:
        yield f"{where}\n  - {old}\n  + {new}"


class TestSchema:
    def test_operations_match_the_recorded_schema(self) -> None:
        described = operations(json.loads(json.dumps(document())))
        if os.environ.get("EVENSHARE_RECORD"):
            data = json.dumps(described, indent=0, sort_keys=True).encode()
            RECORDED.write_bytes(gzip.compress(data, 9, mtime=0))
        recorded = json.loads(gzip.decompress(RECORDED.read_bytes()))
        wrong = list(differences(recorded, described, ""))
        assert not wrong, f"{len(wrong)} differences:\n" + "\n".join(wrong[:20])
