"""Test the output and errors of `manage.py decide` on stored snapshots."""

from __future__ import annotations

import gzip
import json
import zlib
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from msgspec.structs import replace

from benchmarks.ltgf_pool import pool
from evenshare_core.domain.cluster import Node
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.values import canonical_bytes, sha256_hex
from evenshare_core.policies.base import decide_round
from tests.papers.test_sharing_properties import mixed

SNAPSHOT = mixed(3, nodes=6, tenants=3, pending=20, fill=0.5, expired=0.5)


def decide(path: Path, *words: str) -> str:
    out = StringIO()
    call_command("decide", "--snapshot", str(path), *words, stdout=out)
    return out.getvalue()


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    path = tmp_path / "snapshot.json"
    path.write_bytes(canonical_bytes(SNAPSHOT))
    return path


class TestDecision:
    def test_prints_json_with_field_names(self, stored: Path) -> None:
        told = json.loads(decide(stored, "--policy", "oef", "--json"))
        decision = decide_round(SNAPSHOT)
        assert [row["job"] for row in told["grants"]] == [row.job for row in decision.grants]
        assert told["grants"][0].keys() >= {"gpu_type", "placement", "own", "price_micro"}
        assert decision.solve is not None
        assert told["solve"]["status"] == decision.solve.status
        assert {row["tenant"] for row in told["ideals"]} == {row.tenant for row in decision.ideals}

    def test_is_identical_for_compressed_snapshot(self, stored: Path, tmp_path: Path) -> None:
        plain = decide(stored)
        for name, pack in (("zlib", zlib.compress), ("gzip", gzip.compress)):
            packed = tmp_path / name
            packed.write_bytes(pack(stored.read_bytes()))
            assert decide(packed) == plain
        assert sha256_hex(canonical_bytes(decide_round(SNAPSHOT))) in plain

    def test_with_other_policy_drops_options_and_memory(self, tmp_path: Path) -> None:
        plain = pool(seed=3, nodes=6, tenants=3, pending=20, fill=0.5, expired=0.5)
        told = replace(
            plain, policy="oef", options={"environment": "noncooperative"}, memory={"x": 1}
        )
        path = tmp_path / "snapshot"
        path.write_bytes(canonical_bytes(told))
        found = decide(path, "--policy", "fifo", "--option", "backfill=true")
        fifo = replace(told, policy="fifo", options={"backfill": True}, memory={})
        assert sha256_hex(canonical_bytes(decide_round(fifo))) in found

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (("--policy", "lottery"), "no policy is named 'lottery'"),
            (("--option", "environment=war"), "environment: Choose one of"),
            (("--option", "environment"), "an option must be KEY=VALUE"),
        ],
    )
    def test_rejects_invalid_policy_and_options(
        self, stored: Path, words: Any, message: str
    ) -> None:
        with pytest.raises(CommandError, match=message):
            decide(stored, *words)

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            (b"{}", "holds no snapshot"),
            (b"", "holds no snapshot"),
            (b"x\x9c123", "cannot be decompressed"),
            (canonical_bytes(SNAPSHOT)[:-9], "holds no snapshot"),
            (canonical_bytes(replace(SNAPSHOT, schema=99)), "of version 99; the newest known is"),
            (canonical_bytes(replace(SNAPSHOT, lease_us=0)), "lease_us must be at least 1"),
            (
                canonical_bytes(replace(SNAPSHOT, nodes=(Node(7, "v100", -1),))),
                "node 7: gpus must be at least 0",
            ),
            (
                canonical_bytes(replace(SNAPSHOT, profiles=(Profile(3, 1, (), 0),))),
                "profile 3: priority must be at least 1",
            ),
        ],
    )
    def test_rejects_file_without_snapshot(self, tmp_path: Path, data: bytes, message: str) -> None:
        path = tmp_path / "snapshot"
        path.write_bytes(data)
        with pytest.raises(CommandError, match=message):
            decide(path)

    def test_rejects_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(CommandError, match="No such file"):
            decide(tmp_path / "nowhere")
