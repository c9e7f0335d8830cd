"""OR-Tools beside highspy in one process, whichever comes first.

Both wheels bring a `libhighs.so.1`, of different versions. The loader takes the one that is there
already for the other, and the import fails for a missing symbol. So highspy is loaded first, and
bound to its own; then OR-Tools' copy by its path, with its symbols in the global scope, where
OR-Tools finds them before those of highspy. Nothing of OR-Tools may be imported before this.
"""

from __future__ import annotations

import ctypes
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import highspy


def ortools(module: str) -> Any:
    """Import a module of OR-Tools.

    Raises:
        ImportError: it is not installed.
    """
    assert highspy.Highs is not None  # noqa: S101 - it must be loaded before; this says so
    spec = find_spec("ortools")
    if spec is None or spec.origin is None:
        raise ImportError("OR-Tools is not installed")
    copy = Path(spec.origin).parent / ".libs" / "libhighs.so.1"
    if copy.exists():  # Not on other systems, whose loaders keep the two apart.
        ctypes.CDLL(str(copy), mode=ctypes.RTLD_GLOBAL)
    return import_module(module)
