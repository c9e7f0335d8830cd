"""The demo's traces and speeds as files; README.md lists their sources."""

from __future__ import annotations

from pathlib import Path

DATA = Path(__file__).resolve().parent
