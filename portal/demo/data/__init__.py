"""The demo's traces and speeds as files; README.md says where they are from."""

from __future__ import annotations

from pathlib import Path

DATA = Path(__file__).resolve().parent
