"""The demo's traces and speeds as files; README.md lists their sources."""

from pathlib import Path

DATA = Path(__file__).resolve().parent
