"""Test rounds of sharing policies on a real database: mixed types, replay, export, fallbacks."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from msgspec.structs import replace

from evenshare_core.domain.decision import Decision, Solve
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies import registry
from evenshare_core.policies.sharing import oef
from scheduling.models import Lease, Round, RoundBlob
from scheduling.selectors.rounds.replay import find_rounds, replay_stored_round
from scheduling.selectors.rounds.stored import round_decision
from tests.factories import Cluster, cluster

pytestmark = pytest.mark.usefixtures("committed_db")


def mixed(policy: str = "oef") -> Cluster:
    """Return two types of 4 GPUs each.

    Jobs of `a` are equally fast on both, jobs of `b` are not.
    """
    lab = cluster({"a": 2, "b": 2}, nodes=1, gpus=4, lease_s=20, policy=policy)
    lab.add_type("k80", nodes=1, gpus=4, quotas={"a": 2, "b": 2})
    for tenant, speed in (("a", 1000), ("b", 6000)):
        profile = lab.profile(tenant, "train", k80=1000, v100=speed)
        for _ in range(6):
            lab.submit(tenant, 1, 300, profile=profile)
    return lab


class TestRounds:
    def test_give_fast_type_to_jobs_that_gain_most(self) -> None:
        lab = mixed()
        lab.round()
        held = Lease.objects.values_list("tenant__slug", "gpu_type__name")
        assert sorted(held) == [("a", "k80")] * 4 + [("b", "v100")] * 4

    @pytest.mark.parametrize("policy", ["oef", "gavel", "max_min", "max_efficiency"])
    def test_replay_to_same_bytes_and_solve_once(self, policy: str) -> None:
        lab = mixed(policy)
        lab.rounds(10, every_s=10)
        rounds = find_rounds(lab.pool.name, [], every=True)
        assert len(rounds) == 10
        assert all(replay_stored_round(round_).same for round_ in rounds)
        assert {round_decision(round_).memory["key"] for round_ in rounds[:5]} == {
            round_decision(rounds[0]).memory["key"]
        }
        assert all(row.fallback == "" for row in rounds)


class TestExportedSnapshot:
    def test_gives_stored_decision(self, tmp_path: Path) -> None:
        lab = mixed()
        lab.rounds(3, every_s=10)
        path, told = tmp_path / "snapshot.json", StringIO()
        words = ("3", "--pool", lab.pool.name, "--export", str(path))
        call_command("replay_round", *words, stdout=StringIO())
        call_command("decide", "--snapshot", str(path), stdout=told)
        stored = Round.objects.get(pool=lab.pool, number=3)
        assert stored.decision_sha256 in told.getvalue()
        blob = RoundBlob.objects.get(pool=lab.pool, number=3)
        path.write_bytes(bytes(blob.snapshot))
        call_command("decide", "--snapshot", str(path), stdout=told)

    def test_export_accepts_single_round_only(self, tmp_path: Path) -> None:
        lab = mixed()
        lab.rounds(2, every_s=10)
        with pytest.raises(CommandError, match="name it by its number"):
            call_command(
                "replay_round", "--all", "--pool", lab.pool.name, "--export", str(tmp_path / "x")
            )


class TestFallback:
    def test_is_recorded_in_round(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Weak(oef.Oef):
            name = "weak"

            def decide(self, snapshot: Snapshot) -> Decision:
                solve = Solve("equal split", "fallback", 1.0, "fast: no optimum" * 20)
                return replace(super().decide(snapshot), solve=solve)

        monkeypatch.setitem(registry.POLICIES, "weak", Weak())
        result = mixed("weak").round()
        assert result.round is not None
        result.round.refresh_from_db()
        assert result.round.fallback.startswith("equal split, because fast: no optimum")
        assert len(result.round.fallback) == 120
