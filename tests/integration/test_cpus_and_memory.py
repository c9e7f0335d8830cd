"""Test CPUs and memory in the live portal: how rounds read them, and when nothing changes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from evenshare_core.domain.cluster import Resources
from evenshare_core.domain.snapshot import Snapshot, schema_of
from evenshare_core.domain.values import canonical_bytes, decode
from evenshare_core.policies.orders.drf import Drf
from evenshare_core.policies.registry import POLICIES
from scheduling.engine.snapshots import next_number, read_snapshot
from scheduling.models import Job, Node, Pool, Round
from scheduling.requests.nodes import NodeChangeRequest
from scheduling.selectors.rounds.replay import find_rounds, replay_stored_round
from scheduling.selectors.rounds.stored import round_values
from scheduling.services.nodes import change_nodes
from scheduling.services.settings_impact import with_settings
from tenants.audit import Actor
from tenants.input.errors import InvalidInputError
from tenants.models import AuditRecord, User
from tests.factories import Cluster, cluster

pytestmark = pytest.mark.usefixtures("committed_db")

WITH_RESOURCES = schema_of((), (), (Resources(1, 1, 0),))


def shared(policy: str = "drf", **fields: Any) -> Cluster:
    """Return a pool of two nodes with 4 GPUs each, shared by two tenants."""
    return cluster({"a": 4, "b": 4}, nodes=2, gpus=4, policy=policy, **fields)


def tell(lab: Cluster, cpus: int, memory_mb: int = 0) -> None:
    Node.objects.filter(pool=lab.pool).update(cpus=cpus, memory_mb=memory_mb)


def seen(lab: Cluster) -> Snapshot:
    return read_snapshot(lab.pool.pk, number=next_number(lab.pool.pk), at=lab.at)


def states(*jobs: Job) -> list[tuple[str, str]]:
    for job in jobs:
        job.refresh_from_db()
    return [(job.state, job.reason_code) for job in jobs]


class TestSnapshot:
    def test_has_resources_of_nodes_and_jobs_by_id(self) -> None:
        lab = shared()
        first, second = Node.objects.order_by("id")
        Node.objects.filter(pk=second.pk).update(cpus=16, memory_mb=1000)
        Node.objects.filter(pk=first.pk).update(memory_mb=500, state="drained")
        silent, stated = lab.submit("a", 1, 60), lab.submit("b", 1, 60, cpus=3, memory_mb=7)
        snapshot = seen(lab)
        assert snapshot.schema == WITH_RESOURCES
        assert snapshot.node_resources == (
            Resources(first.pk, 0, 500), Resources(second.pk, 16, 1000)
        )  # fmt: skip
        assert snapshot.job_resources == (Resources(stated.pk, 3, 7),)
        assert [job.id for job in snapshot.jobs] == [silent.pk, stated.pk]

    @pytest.mark.parametrize("policy", ["drf", "evenshare"])
    def test_is_unchanged_if_no_node_declares_resources(self, policy: str) -> None:
        """Jobs of a trace declare CPUs, but no node does, so the snapshot's bytes do not change."""
        lab = shared(policy)
        job = lab.submit("a", 1, 60)
        before = seen(lab)
        Job.objects.filter(pk=job.pk).update(cpus=8, memory_mb=100)
        assert canonical_bytes(seen(lab)) == canonical_bytes(before)
        assert before.schema < WITH_RESOURCES
        tell(lab, 8)
        assert seen(lab).job_resources == (Resources(job.pk, 8, 100),)

    def test_keeps_resources_under_other_settings(self) -> None:
        lab = shared("evenshare")
        tell(lab, 8)
        lab.submit("a", 1, 60, cpus=8)
        snapshot = seen(lab)
        changed = with_settings(snapshot, policy="drf", options={}, round_s=10, lease_s=60)
        assert changed.schema == WITH_RESOURCES
        assert changed.node_resources == snapshot.node_resources
        assert decode(canonical_bytes(changed), Snapshot) == changed


class TestRound:
    def test_places_jobs_by_cpus_and_names_missing_resource(self) -> None:
        lab = shared()
        tell(lab, 8, 100)
        jobs = [lab.submit("a", 1, 600, cpus=8), lab.submit("b", 1, 600, cpus=6, memory_mb=90)]
        waits = lab.submit("a", 1, 600, cpus=4)
        small = lab.submit("b", 1, 600, cpus=2)
        lab.round()
        assert states(*jobs, waits, small) == [
            ("running", ""), ("running", ""), ("pending", "cpus_or_memory"), ("running", "")
        ]  # fmt: skip
        Job.objects.filter(pk=jobs[0].pk).update(cancel_asked_at=lab.at)
        lab.round(after_s=10)
        lab.round(after_s=10)
        assert states(waits) == [("running", "")]

    def test_treats_undeclared_memory_as_sufficient(self) -> None:
        lab = shared()
        tell(lab, 8)
        job = lab.submit("a", 1, 60, cpus=8, memory_mb=10**6)
        lab.round()
        assert states(job) == [("running", "")]

    @pytest.mark.parametrize("policy", sorted(POLICIES.keys() - {"drf"}))
    def test_other_policies_ignore_cpus_and_memory(self, policy: str) -> None:
        lab = shared(policy)
        tell(lab, 1, 1)
        jobs = [lab.submit("a", 2, 60, cpus=99), lab.submit("b", 2, 60, memory_mb=10**6)]
        lab.round()
        assert states(*jobs) == [("running", "")] * 2

    def test_old_and_new_rounds_replay_to_same_bytes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The first rounds have the version and schema of an older portal."""
        lab = shared(lease_s=20)
        for gpus in (1, 2, 4, 3):
            lab.submit("a", gpus, 45, cpus=gpus)
            lab.submit("b", gpus, 70, memory_mb=10 * gpus)
        with monkeypatch.context() as older:
            older.setattr(Drf, "version", "1")
            lab.rounds(4, every_s=10)
        tell(lab, 2, 40)
        lab.at += timedelta(seconds=10)
        lab.rounds(6, every_s=10)
        rounds = find_rounds(lab.pool.name, [], every=True)
        schemas = [round_values(one)[0].schema for one in rounds]
        assert schemas == sorted(schemas)
        assert {2, WITH_RESOURCES} <= set(schemas)
        assert {one.policy_version for one in rounds} == {"1", Drf.version}
        assert all(replay_stored_round(one).same for one in rounds)
        assert Round.objects.filter(superseded__gt=0).count() == 0


class TestNodeChange:
    def test_sets_resources_of_several_nodes_with_audit_record(self) -> None:
        lab = shared()
        actor = Actor(User.objects.create(username="otto", site_role="operator"))
        names = ["n0000", "n0001"]
        wanted = NodeChangeRequest(cpus=32)
        args: dict[str, Any] = {"actor": actor, "pool": lab.pool, "names": names}
        assert change_nodes(**args, request=wanted) == 2
        assert change_nodes(**args, request=wanted) == 0
        assert change_nodes(**args, request=NodeChangeRequest(memory_mb=64)) == 2
        assert set(Node.objects.values_list("cpus", "memory_mb")) == {(32, 64)}
        first = AuditRecord.objects.filter(action="node.changed").earliest("id")
        assert (first.subject, first.before, first.after) == (
            f"node {Pool.objects.get().name}/n0000", {"cpus": 0}, {"cpus": 32}
        )  # fmt: skip

    def test_reports_all_errors_at_once(self) -> None:
        lab = shared()
        actor = Actor(User.objects.create(username="otto", site_role="operator"))
        with pytest.raises(InvalidInputError) as refused:
            change_nodes(
                actor=actor, pool=lab.pool, names=["n0000", "n7"], request=NodeChangeRequest()
            )
        assert refused.value.by_field == {
            "cpus": "Give CPUs, memory, or both.", "nodes": "Choose nodes of this pool."
        }  # fmt: skip
