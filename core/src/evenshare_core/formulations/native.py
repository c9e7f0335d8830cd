"""Imports of OR-Tools next to highspy, in any order.

Both wheels contain a `libhighs.so.1`, of different versions. The loader would use the first for
both, and the second import would fail with a missing symbol. So highspy is loaded first, and bound
to its own copy. Then OR-Tools' copy is loaded by its path with global symbols, which OR-Tools finds
before those of highspy. Do not import OR-Tools in any other way.
"""

import ctypes
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import highspy


def ortools(module: str) -> Any:
    """Import a module of OR-Tools.

    Raises:
        ImportError: OR-Tools is not installed.
    """
    assert highspy.Highs is not None  # noqa: S101 - it must be loaded before; this says so
    spec = find_spec("ortools")
    if spec is None or spec.origin is None:
        raise ImportError("OR-Tools is not installed")
    copy = Path(spec.origin).parent / ".libs" / "libhighs.so.1"
    if copy.exists():  # Only Linux has this copy; other loaders keep the two libraries apart.
        ctypes.CDLL(str(copy), mode=ctypes.RTLD_GLOBAL)
    return import_module(module)
