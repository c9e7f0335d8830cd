"""Test operators' actions on pools, nodes, people and jobs: checked, recorded, used by rounds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from threading import Barrier, Thread
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.db import connections

from evenshare_core.domain.snapshot import Snapshot
from scheduling.engine import rounds as engine
from scheduling.models import (
    Job,
    Lease,
    LeaseSlot,
    MaintenanceWindow,
    Node,
    Pool,
    PoolClock,
    PriceSetting,
    RoundFailure,
)
from scheduling.requests.nodes import NodeRequest, WindowRequest
from scheduling.requests.pools import LENGTHS, PriceRequest
from scheduling.selectors.operate import console as reads
from scheduling.selectors.pools.nodes import leases_into
from scheduling.selectors.pools.now import pool_overview
from scheduling.selectors.visibility import read_visibility
from scheduling.services import jobs, nodes, pools
from scheduling.tasks import run_round
from tenants.audit import Actor, audit_page
from tenants.input.errors import InvalidInputError
from tenants.input.requests import read_request
from tenants.models import AuditRecord, Membership, User
from tenants.requests import MembershipRequest, PersonRequest, TenantRequest
from tenants.selectors.access import Access
from tenants.services.people import (
    add_member,
    create_user,
    open_tenant,
    remove_member,
    set_member_role,
)
from tests.factories import BEGIN, Cluster, cluster

Role = Membership.Role
HOUR = timedelta(hours=1)
NLP = TenantRequest(slug="nlp", name="NLP", initials="NL")


@pytest.fixture
def actor(committed_db: str) -> Actor:
    assert committed_db
    user = User.objects.create(username="otto", site_role=User.SiteRole.OPERATOR)
    return Actor(user, "request-1")


def holders(lab: Cluster, node: str) -> int:
    """Return the GPUs that leases hold on a node."""
    return LeaseSlot.objects.filter(node__pool=lab.pool, node__name=node, holding=True).count()


def busy(**pool_fields: Any) -> Cluster:
    """Return two nodes of 4 GPUs, filled by eight jobs of one GPU."""
    short = {"lease_s": 60, "policy": "ltgf", **pool_fields}
    lab = cluster({"a": 4, "b": 4}, nodes=2, gpus=4, **short)
    for tenant in ("a", "b"):
        for _ in range(4):
            lab.submit(tenant, 1, 100_000)
    return lab


class TestDrainedNode:
    def test_is_empty_after_its_leases_expired(self, actor: Actor) -> None:
        lab = busy()
        lab.round()
        assert (holders(lab, "n0000"), holders(lab, "n0001")) == (4, 4)
        lab.at += timedelta(seconds=5)
        nodes.drain_node(actor=actor, pool=lab.pool, name="n0000", reason="fan")
        lab.rounds(5, every_s=10)
        assert holders(lab, "n0000") == 4, "a lease is kept until its expiry"
        lab.rounds(4, every_s=10)
        assert (holders(lab, "n0000"), holders(lab, "n0001")) == (0, 4)
        assert set(Lease.objects.filter(state="ended").values_list("end_reason", flat=True)) <= {
            "drained",
            "not_renewed",
        }
        nodes.resume_node(actor=actor, pool=lab.pool, name="n0000")
        lab.rounds(2, every_s=10)
        assert holders(lab, "n0000") == 4

    def test_can_be_removed_only_when_empty(self, actor: Actor) -> None:
        lab = busy()
        lab.round()
        with pytest.raises(InvalidInputError, match="Drain it first"):
            nodes.remove_node(actor=actor, pool=lab.pool, name="n0000")
        nodes.drain_node(actor=actor, pool=lab.pool, name="n0000", reason="fan")
        with pytest.raises(InvalidInputError, match="hold 4 of its GPUs"):
            nodes.remove_node(actor=actor, pool=lab.pool, name="n0000")
        lab.rounds(8, every_s=10)
        nodes.remove_node(actor=actor, pool=lab.pool, name="n0000")
        lab.rounds(2, every_s=10)
        view = pool_overview(lab.pool.pk, read_visibility(lab.pool.pk, Access()))
        assert [node.name for kind in view.types for node in kind.nodes] == ["n0001"]
        assert Node.objects.get(name="n0000").pool is None
        assert LeaseSlot.objects.filter(node__name="n0000").exists()
        # Another node may then have the same name.
        wanted = NodeRequest(pool=lab.pool.name, name="n0000", gpu_type="v100", gpus=8)
        nodes.add_node(actor=actor, pool=lab.pool, request=wanted)
        lab.rounds(2, every_s=10)
        assert holders(lab, "n0000") == 4


class TestMaintenance:
    def plan(self, lab: Cluster, actor: Actor, begins_s: int, ends_s: int) -> None:
        nodes.add_window(
            actor=actor,
            pool=lab.pool,
            request=WindowRequest(
                pool=lab.pool.name,
                nodes=("n0000",),
                starts_at=BEGIN + timedelta(seconds=begins_s),
                ends_at=BEGIN + timedelta(seconds=ends_s),
            ),
            now=lab.at,
        )

    @pytest.mark.parametrize("begins_s", [200, 203, 207])
    def test_overlaps_no_lease(self, actor: Actor, begins_s: int) -> None:
        lab = busy()
        lab.round()
        self.plan(lab, actor, begins_s, 300)
        held = {}
        for _ in range(38):
            lab.round(after_s=10)
            held[int((lab.at - BEGIN).total_seconds())] = holders(lab, "n0000")
        assert all(count == 0 for at, count in held.items() if begins_s <= at < 300)
        assert held[10] == 4
        assert held[100] == 4, "it is used as long as leases end in time"
        assert held[300] == 4, "it is used again as soon as the window is over"
        first, last = BEGIN + timedelta(seconds=begins_s), BEGIN + timedelta(seconds=300)
        node = Node.objects.get(name="n0000")
        there = Lease.objects.filter(slots__node=node, started_at__lt=last).exclude(
            ended_at__lte=first
        )
        assert not there.filter(started_at__lt=last, ended_at__gt=first).exists()

    def test_cancelled_window_frees_node(self, actor: Actor) -> None:
        lab = busy()
        self.plan(lab, actor, 30, 3000)
        lab.round()
        assert holders(lab, "n0000") == 0
        window = MaintenanceWindow.objects.get()
        nodes.end_window(actor=actor, pool=lab.pool, window_id=window.pk, now=lab.at)
        lab.round(after_s=10)
        assert holders(lab, "n0000") == 4
        assert not MaintenanceWindow.objects.exists()

    def test_active_window_can_be_ended_now(self, actor: Actor) -> None:
        lab = busy()
        self.plan(lab, actor, 0, 3000)
        lab.round()
        lab.at += timedelta(seconds=15)
        window = MaintenanceWindow.objects.get()
        nodes.end_window(actor=actor, pool=lab.pool, window_id=window.pk, now=lab.at)
        window.refresh_from_db()
        assert window.ends_at == lab.at
        with pytest.raises(InvalidInputError, match="over"):
            nodes.end_window(actor=actor, pool=lab.pool, window_id=window.pk, now=lab.at)

    def test_rejects_overlapping_window_of_same_node(self, actor: Actor) -> None:
        lab = busy()
        self.plan(lab, actor, 100, 200)
        self.plan(lab, actor, 200, 300)
        with pytest.raises(InvalidInputError, match="has maintenance until"):
            self.plan(lab, actor, 150, 160)

    @pytest.mark.parametrize(
        ("begins_s", "ends_s", "field"), [(100, 100, "ends_at"), (-200, -100, "ends_at")]
    )
    def test_rejects_window_that_is_empty_or_past(
        self, actor: Actor, begins_s: int, ends_s: int, field: str
    ) -> None:
        lab = busy()
        with pytest.raises(InvalidInputError) as error:
            self.plan(lab, actor, begins_s, ends_s)
        assert list(error.value.by_field) == [field]

    def test_counts_leases_that_reach_into_window(self, actor: Actor) -> None:
        lab = busy()
        lab.round()
        self.plan(lab, actor, 30, 300)
        assert leases_into(MaintenanceWindow.objects.get()) == 4


class TestPool:
    def change(self, lab: Cluster, actor: Actor, **fields: Any) -> bool:
        lengths = {name: getattr(lab.pool, name) for name in LENGTHS}
        chosen: dict[str, Any] = {
            "policy": "ltgf",
            "options": {},
            "visibility": "full",
            "lengths": lengths | fields.pop("lengths", {}),
            **fields,
        }
        return pools.change_pool(actor=actor, pool_id=lab.pool.pk, **chosen)

    def test_uses_new_settings_in_next_round_and_audits_changes(self, actor: Actor) -> None:
        lab = busy()
        self.change(lab, actor, lengths={"lease_s": 120}, options={"spread": True})
        lab.round()
        assert set(Lease.objects.values_list("expires_at", flat=True)) == {
            BEGIN + timedelta(seconds=120)
        }
        record = AuditRecord.objects.get()
        assert record.before["lease_s"] == 60
        assert record.after["lease_s"] == 120
        assert set(record.after) == {"lease_s", "options"}

    @pytest.mark.parametrize(
        ("fields", "error"),
        [
            ({"policy": "best"}, "policy"),
            ({"options": {"spread": "maybe"}}, "options.spread"),
            ({"options": {"reserve_after_leases": -1}}, "options.reserve_after_leases"),
            ({"options": {"hurry": 1}}, "options.hurry"),
            ({"lengths": {"round_s": 0}}, "round_s"),
            ({"lengths": {"lease_s": None}}, "lease_s"),
            ({"visibility": "gossip"}, "visibility"),
        ],
    )
    def test_rejects_settings_out_of_bounds(
        self, actor: Actor, fields: dict[str, Any], error: str
    ) -> None:
        lab = busy()
        with pytest.raises(InvalidInputError) as raised:
            self.change(lab, actor, **fields)
        assert list(raised.value.by_field) == [error]
        assert not AuditRecord.objects.exists()

    def test_pauses_and_resumes_at_same_pool_time(self, actor: Actor) -> None:
        lab = busy()
        stopped = pools.set_pool_clock(actor=actor, pool_id=lab.pool.pk, paused=True)
        assert run_round(lab.pool.pk) == "not_due"
        again = pools.set_pool_clock(actor=actor, pool_id=lab.pool.pk, paused=False)
        assert timedelta(0) <= again.pool_at - stopped.pool_at < timedelta(seconds=1)
        assert list(AuditRecord.objects.order_by("id").values_list("action", flat=True)) == [
            "clock.paused",
            "clock.resumed",
        ]

    def test_real_time_pool_keeps_scale_1(self, actor: Actor) -> None:
        lab = busy()
        with pytest.raises(InvalidInputError, match="scale 1"):
            pools.set_pool_clock(actor=actor, pool_id=lab.pool.pk, scale=60)
        Pool.objects.update(book="demo")
        pools.set_pool_clock(actor=actor, pool_id=lab.pool.pk, scale=60)
        assert PoolClock.objects.get().scale == 60

    def test_posts_prices_by_new_setting(self, actor: Actor) -> None:
        lab = busy()
        pools.set_price(
            actor=actor,
            pool_id=lab.pool.pk,
            request=PriceRequest(gpu_type="v100", base=Decimal("2.5"), theta=Decimal(3)),
        )
        lab.rounds(2, every_s=10)
        price = reads.last_rounds(lab.pool.pk)
        assert price
        setting = PriceSetting.objects.get()
        assert (setting.base, setting.theta) == (Decimal("2.5"), Decimal(3))
        view = pool_overview(lab.pool.pk, read_visibility(lab.pool.pk, Access()))
        assert view.prices[0].price == Decimal("5.000000")

    @pytest.mark.parametrize(
        ("base", "theta", "field"),
        [("-1", "2", "base"), ("1.0000001", "2", "base"), ("1", "1", "theta"), ("1", "0", "theta")],
    )
    def test_rejects_invalid_prices(self, actor: Actor, base: str, theta: str, field: str) -> None:
        lab = busy()
        asked = {"gpu_type": "v100", "base": Decimal(base), "theta": Decimal(theta)}
        with pytest.raises(InvalidInputError) as error:
            pools.set_price(
                actor=actor, pool_id=lab.pool.pk, request=read_request(PriceRequest, asked)
            )
        assert list(error.value.by_field) == [field]


class TestFailingRound:
    def test_is_reported_until_next_successful_round(
        self, actor: Actor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lab = busy()
        assert actor.request_id

        def broken(_: Snapshot) -> None:
            raise RuntimeError("no quorum of oracles")

        with monkeypatch.context() as patched:
            patched.setattr(engine, "decide_round", broken)
            for _ in range(3):
                with pytest.raises(RuntimeError):
                    run_round(lab.pool.pk)
        failures = reads.pool_failures()
        assert [(row.pool.name, row.count, row.error) for row in failures] == [
            (lab.pool.name, 3, "RuntimeError: no quorum of oracles")
        ]
        assert run_round(lab.pool.pk) == "committed"
        assert not RoundFailure.objects.exists()


class TestQuarantinedJob:
    def test_runs_after_release(self, actor: Actor) -> None:
        lab = busy()
        job = lab.submit("a", 1, 1000)
        Job.objects.exclude(pk=job.pk).update(state="cancelled", ended_at=lab.at)
        Job.objects.filter(pk=job.pk).update(quarantine="bad", reason_code="quarantined")
        lab.round()
        assert [row.name for row in reads.quarantined_jobs()] == ["a-1"]
        jobs.release_job(actor=actor, job=job)
        lab.round(after_s=10)
        job.refresh_from_db()
        assert (job.state, job.reason_code) == ("running", "")
        assert reads.quarantined_jobs() == []


class TestPeople:
    def test_get_password_once_that_audit_log_omits(self, actor: Actor) -> None:
        user, password = create_user(
            actor=actor, request=PersonRequest(username="nina", site_role="finance")
        )
        assert user.check_password(password)
        assert len(password) >= 16
        record = AuditRecord.objects.get()
        assert password not in str((record.before, record.after, record.subject))
        with pytest.raises(InvalidInputError, match="taken"):
            create_user(actor=actor, request=PersonRequest(username="NINA"))

    def test_last_manager_cannot_be_removed(self, actor: Actor) -> None:
        tenant = open_tenant(actor=actor, request=NLP, books=["main"])
        for name in ("ada", "bea"):
            User.objects.create(username=name)
            add_member(
                actor=actor,
                tenant=tenant,
                request=MembershipRequest(username=name, role=Role.MANAGER),
            )
        set_member_role(
            actor=actor, tenant=tenant, request=MembershipRequest(username="ada", role=Role.VIEWER)
        )
        with pytest.raises(InvalidInputError, match="last manager"):
            set_member_role(
                actor=actor,
                tenant=tenant,
                request=MembershipRequest(username="bea", role=Role.MEMBER),
            )
        with pytest.raises(InvalidInputError, match="last manager"):
            remove_member(actor=actor, tenant=tenant, username="bea")
        set_member_role(
            actor=actor, tenant=tenant, request=MembershipRequest(username="ada", role=Role.MANAGER)
        )
        remove_member(actor=actor, tenant=tenant, username="bea")
        records, more = audit_page(action="member.", limit=3)
        assert [row.action for row in records][:1] == ["member.removed"]
        assert more is not None

    def test_concurrent_removals_keep_one_manager(self, actor: Actor) -> None:
        tenant = open_tenant(actor=actor, request=NLP, books=["main"])
        names = ("ada", "bea")
        for name in names:
            User.objects.create(username=name)
            add_member(
                actor=actor,
                tenant=tenant,
                request=MembershipRequest(username=name, role=Role.MANAGER),
            )
        start, outcomes = Barrier(2), []

        def leave(name: str) -> None:
            start.wait()
            try:
                remove_member(actor=actor, tenant=tenant, username=name)
                outcomes.append("gone")
            except InvalidInputError:
                outcomes.append("stays")
            finally:
                connections.close_all()

        threads = [Thread(target=leave, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes) == ["gone", "stays"]

    @pytest.mark.parametrize(
        ("fields", "error"),
        [
            ({"slug": "A b"}, "slug"),
            ({"name": ""}, "name"),
            ({"initials": "abc"}, "initials"),
        ],
    )
    def test_open_tenant_rejects_invalid_names(
        self, actor: Actor, fields: dict[str, str], error: str
    ) -> None:
        chosen = {"slug": "nlp", "name": "NLP", "initials": "NL"} | fields
        with pytest.raises(InvalidInputError) as raised:
            open_tenant(actor=actor, request=read_request(TenantRequest, chosen), books=["main"])
        assert list(raised.value.by_field) == [error]


@pytest.mark.parametrize("role", ["", "finance", "auditor"])
def test_only_operators_may_operate(committed_db: str, role: str) -> None:
    assert committed_db
    lab = busy()
    other = Actor(User.objects.create(username="x", site_role=role))
    job = Job.objects.first()
    assert job is not None
    attempts: list[Callable[[], object]] = [
        lambda: pools.set_pool_clock(actor=other, pool_id=lab.pool.pk, paused=True),
        lambda: jobs.release_job(actor=other, job=job),
        lambda: nodes.drain_node(actor=other, pool=lab.pool, name="n0000", reason="fan"),
        lambda: nodes.remove_node(actor=other, pool=lab.pool, name="n0000"),
        lambda: create_user(actor=other, request=PersonRequest(username="y", site_role="operator")),
        lambda: add_member(
            actor=other,
            tenant=lab.tenants["a"],
            request=MembershipRequest(username="x", role=Role.MANAGER),
        ),
    ]
    for attempt in attempts:
        with pytest.raises(PermissionDenied):
            attempt()
    assert not AuditRecord.objects.exists()
