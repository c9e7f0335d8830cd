"""Test the output of `sync_nodes` when nodes change."""

from __future__ import annotations

from scheduling.management.commands.sync_nodes import _line
from scheduling.services.node_sync import SyncedNode


def test_line_agrees_in_number() -> None:
    after = {"gpu_type": "a100", "gpus": 1, "cpus": 1, "memory_mb": 64000}
    added = SyncedNode("added", "n1", {}, after)
    assert _line(added) == "+ n1: a100, 1 GPU, 1 CPU, 64000 MB of memory"
    changed = SyncedNode("changed", "n1", {"gpus": 1}, {"gpus": 4})
    assert _line(changed) == "~ n1: 1 -> 4 GPUs"
