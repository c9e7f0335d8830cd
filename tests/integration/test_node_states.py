"""Test that node states are synchronised both ways, with a Slurm whose answers the test sets."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.db import transaction

from scheduling.engine import node_states
from scheduling.engine.fence import FencedError, release_fence, take_fence
from scheduling.engine.node_states import follow_nodes
from scheduling.engine.snapshots import read_snapshot
from scheduling.models import ExecutorHealth, LeaseSlot, Node
from scheduling.selectors.pools.capacity import type_capacities
from scheduling.selectors.pools.nodes import node_statuses
from scheduling.services.nodes import drain_node, resume_node
from tenants.audit import Actor
from tenants.faults import arm_faults
from tenants.models import User
from tests.factories import Cluster, cluster
from tests.scope import nobody
from tests.slurm_nodes import PretendedExecutor, PretendedNode, PretendedSlurm


@dataclass
class Both:
    """A pool, a fake Slurm with the pool's nodes, and an operator."""

    lab: Cluster
    slurm: PretendedSlurm
    actor: Actor = field(default_factory=lambda: Actor(_operator()))

    def look(self) -> None:
        token = take_fence(self.lab.pool.pk, holder="test")
        assert token is not None
        try:
            with nobody():
                follow_nodes(self.lab.pool, PretendedExecutor(self.slurm), token)
        finally:
            release_fence(self.lab.pool.pk, token)

    def drain(self, name: str, reason: str = "fan") -> None:
        drain_node(actor=self.actor, pool=self.lab.pool, name=name, reason=reason)

    def resume(self, name: str) -> None:
        resume_node(actor=self.actor, pool=self.lab.pool, name=name)

    def node(self, name: str = "n0000") -> Node:
        return Node.objects.get(pool=self.lab.pool, name=name)

    def there(self, name: str = "n0000") -> PretendedNode:
        return self.slurm.nodes[name]

    def gpus(self) -> list[int]:
        """Return the GPUs that a round would count on each node."""
        snapshot = read_snapshot(self.lab.pool.pk, number=1, at=self.lab.at)
        return [node.gpus for node in snapshot.nodes]

    def updates(self) -> list[tuple[str, ...]]:
        return [call for call in self.slurm.calls if call[0] == "scontrol"]


def _operator() -> User:
    return User.objects.create(username="otto", site_role=User.SiteRole.OPERATOR)


def make_both(nodes: int = 2, **fields: Any) -> Both:
    lab = cluster({"a": 8}, nodes=nodes, policy="ltgf", **fields)
    names = Node.objects.filter(pool=lab.pool).values_list("name", flat=True)
    return Both(lab, PretendedSlurm({name: PretendedNode() for name in names}))


@pytest.fixture
def both(committed_db: str, monkeypatch: pytest.MonkeyPatch) -> Both:
    assert committed_db
    monkeypatch.setattr(node_states, "LOOK_S", 0)
    return make_both()


class TestNodeRemovedBySlurm:
    @pytest.mark.parametrize(
        ("there", "shown", "reason"),
        [
            (PretendedNode(drains=True, reason="disk"), "drained", "by Slurm: disk"),
            (PretendedNode("down", reason="dead"), "lost", "by Slurm: dead"),
            (PretendedNode("idle+not_responding"), "lost", "by Slurm: not responding"),
            (PretendedNode("idle+fail", reason="ecc"), "drained", "by Slurm: ecc"),
        ],
    )
    def test_has_no_capacity_and_shows_reason_until_it_returns(
        self, both: Both, there: PretendedNode, shown: str, reason: str
    ) -> None:
        both.slurm.nodes["n0000"] = there
        both.look()
        assert both.gpus() == [0, 4]
        assert [one.gpus for one in type_capacities(both.lab.pool.pk)] == [4]
        (row, other) = node_statuses(both.lab.pool.pk, both.lab.at)
        assert (row.phase, row.engine_reason, row.state) == (shown, reason, "up")
        assert row.engine_since is not None
        assert other.takes_leases
        since = both.node().engine_since
        both.look()
        assert both.node().engine_since == since
        assert both.updates() == []
        both.slurm.nodes["n0000"] = PretendedNode()
        both.look()
        assert both.gpus() == [4, 4]
        assert (both.node().engine_reason, both.node().engine_since) == ("", None)

    def test_gets_no_lease(self, both: Both) -> None:
        job = both.lab.submit("a", 8, 60)
        both.there().drains = True
        both.look()
        both.lab.round()
        assert not LeaseSlot.objects.filter(lease__job=job).exists()
        both.there().drains = False
        both.look()
        both.lab.round(after_s=10)
        assert LeaseSlot.objects.filter(lease__job=job).count() == 8

    def test_gets_no_lease_if_removed_during_round(self, both: Both) -> None:
        job = both.lab.submit("a", 8, 60)

        def lose(point: str) -> None:
            if point == "round.after_decide":
                Node.objects.filter(pool=both.lab.pool).update(engine_state="down")

        with arm_faults(lose):
            both.lab.round()
        assert not LeaseSlot.objects.filter(lease__job=job).exists()

    def test_missing_node_counts_as_removed(self, both: Both) -> None:
        del both.slurm.nodes["n0001"]
        both.look()
        assert both.gpus() == [4, 0]
        assert both.node("n0001").engine_reason == "by Slurm: the engine has no such node"


class TestDrainByPortal:
    def test_drains_node_in_slurm_until_resumed(self, both: Both) -> None:
        both.drain("n0000", 'two "fans"')
        both.look()
        assert (both.there().drains, both.there().reason) == (True, "evenshare: two 'fans'")
        both.look()
        both.look()
        assert len(both.updates()) == 1
        assert both.node().engine_state == "up"
        both.resume("n0000")
        both.look()
        assert not both.there().drains
        assert both.gpus() == [4, 4]

    def test_is_repeated_if_undone_in_slurm(self, both: Both) -> None:
        both.drain("n0000")
        both.look()
        both.there().drains, both.there().reason = False, ""
        both.look()
        assert both.there().drains
        assert both.node().state == "drained"

    def test_keeps_existing_drain_by_slurm(self, both: Both) -> None:
        both.there().drains, both.there().reason = True, "disk"
        both.drain("n0000")
        both.look()
        both.resume("n0000")
        both.look()
        assert both.updates() == []
        assert both.there() == PretendedNode(drains=True, reason="disk")
        assert both.gpus() == [0, 4]

    def test_waits_while_node_does_not_respond(self, both: Both) -> None:
        both.slurm.nodes["n0000"] = PretendedNode("down", reason="Not responding")
        both.drain("n0000")
        both.look()
        assert both.updates() == []
        both.slurm.nodes["n0000"] = PretendedNode()
        both.look()
        assert both.there().reason == "evenshare: fan"

    def test_refusal_is_logged_once_and_retried(
        self, both: Both, caplog: pytest.LogCaptureFixture
    ) -> None:
        both.slurm.refuses = True
        both.drain("n0000")
        both.look()
        both.look()
        assert "not a Slurm operator" in both.node().engine_trouble
        assert caplog.text.count("executor.nodes_refused") == 1
        both.slurm.refuses = False
        both.look()
        assert both.there().drains
        assert both.node().engine_trouble == ""

    def test_remaining_drain_in_slurm_keeps_leases_away(self, both: Both) -> None:
        both.drain("n0000")
        both.look()
        both.slurm.refuses = True
        both.resume("n0000")
        both.look()
        assert both.gpus() == [0, 4]
        assert both.node().engine_reason == "by Slurm: the drain by the portal remains"
        both.slurm.refuses = False
        both.look()
        assert both.gpus() == [4, 4]


class TestNodeCheck:
    def test_changes_nothing_without_answer(self, both: Both) -> None:
        both.there().drains = True
        both.look()
        before = both.node().engine_reason
        both.slurm.is_silent = True
        both.look()
        assert (both.node().engine_reason, both.gpus()) == (before, [0, 4])

    def test_repeated_checks_are_rate_limited(
        self, both: Both, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(node_states, "LOOK_S", 3600)
        for silent in (False, True):
            both.slurm.is_silent = silent
            both.look()
        assert len(both.slurm.calls) == 1

    def test_is_skipped_while_breaker_is_open(self, both: Both) -> None:
        health = ExecutorHealth.objects.create(
            pool=both.lab.pool, failures=5, open_until=both.lab.at
        )
        both.look()
        assert both.slurm.calls == []
        health.delete()
        both.look()
        assert both.slurm.calls

    def test_superseded_fence_holder_writes_nothing(self, both: Both) -> None:
        both.there().drains = True
        with pytest.raises(FencedError), nobody():
            follow_nodes(both.lab.pool, PretendedExecutor(both.slurm), token=10**9)
        assert both.gpus() == [4, 4]

    def test_calls_engine_outside_of_transactions(self, both: Both) -> None:
        asked = []

        class Watched(PretendedSlurm):
            def ask(self, tool: str, *arguments: str) -> str:
                asked.append((tool, transaction.get_connection().in_atomic_block))
                return super().ask(tool, *arguments)

        both.slurm = Watched(both.slurm.nodes)
        both.drain("n0000")
        both.look()
        assert asked == [("sinfo", False), ("scontrol", False)]


class TestBothSides:
    @pytest.mark.parametrize("seed", range(3))
    def test_random_changes_of_either_side_are_kept(self, both: Both, seed: int) -> None:
        """Each node gets random changes. After two checks the portal and the engine agree."""
        chance = random.Random(seed)  # noqa: S311 - reproducible
        _widen(both, 10)
        here = dict.fromkeys(both.slurm.nodes, "up")
        for _ in range(12):
            for name, there in both.slurm.nodes.items():
                self._act(chance, both, name, there, here)
            theirs = {name: _foreign(there) for name, there in both.slurm.nodes.items()}
            both.look()
            both.look()
            for name, there in both.slurm.nodes.items():
                row = both.node(name)
                assert row.state == here[name]
                assert _foreign(there) == theirs[name], "what others said there stands"
                is_up = here[name] == "up" and not theirs[name] and there.base == "idle"
                assert (row.effective_state == "up") == is_up
                if here[name] == "drained" and there.base == "idle":
                    assert there.drains
                if here[name] == "up":
                    assert there.drains == theirs[name]

    def _act(
        self, chance: random.Random, both: Both, name: str, there: PretendedNode,
        here: dict[str, str],
    ) -> None:  # fmt: skip
        what = chance.choice(("drain", "resume", "admin", "undo", "down", "back", "look", ""))
        if what == "drain":
            both.drain(name)
            here[name] = "drained"
        elif what == "resume":
            both.resume(name)
            here[name] = "up"
        elif what == "admin":
            there.drains, there.reason = True, "theirs"
        elif what == "undo":
            there.drains, there.reason = False, ""
        elif what == "down":
            there.base = "down"
        elif what == "back":
            there.base = "idle"
        elif what == "look":
            both.look()


def _foreign(there: PretendedNode) -> bool:
    return there.drains and not there.reason.startswith("evenshare: ")


def _widen(both: Both, nodes: int) -> None:
    Node.objects.bulk_create(
        Node(pool=both.lab.pool, name=f"x{n:02d}", gpu_type=both.lab.gpu_type, gpus=4)
        for n in range(nodes)
    )
    names = Node.objects.filter(pool=both.lab.pool).values_list("name", flat=True)
    both.slurm.nodes = {name: PretendedNode() for name in names}
