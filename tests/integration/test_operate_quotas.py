"""Test quota periods: shortened, saved in one transaction, previewed by the next round, undone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.core.exceptions import PermissionDenied
from django.db import DatabaseError, connection, transaction
from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.policies.base import decide_round
from scheduling.engine.clock import read_clock
from scheduling.engine.snapshots import next_number, read_snapshot
from scheduling.models import GpuType, Job, Lease, Round
from scheduling.selectors.pools.capacity import gpus_by_type
from scheduling.services.quota_impact import quota_impact, with_quotas
from tenants.audit import Actor, audit_page, write_audit
from tenants.input.errors import InvalidInputError
from tenants.models import AuditRecord, Quota, Tenant, User
from tenants.periods import OverlapError, Period, QuotaTerms, period_at, set_periods
from tenants.services.quotas import (
    QuotaEdit,
    basis_of,
    plan_quotas,
    quota_periods,
    save_quotas,
    undo_quotas,
)
from tests.factories import BEGIN, Cluster, cluster

DAY = timedelta(days=1)
LEND, RESERVE = "LEND_AND_BORROW", "RESERVE"
SIXTEEN, EIGHT = QuotaTerms(16, LEND), QuotaTerms(8, LEND)


def day(number: int) -> datetime:
    return datetime(2030, 1, 1, tzinfo=UTC) + number * DAY


def told(periods: tuple[Period, ...]) -> list[tuple[int, int, int | None]]:
    """Return (GPUs, start day, end day) of each period."""
    start = day(0)
    return [
        (p.terms.gpus, (p.since - start).days, (p.until - start).days if p.until else None)
        for p in periods
    ]


class TestPeriods:
    @pytest.mark.parametrize(
        ("case", "begins", "ends", "gpus", "expected"),
        [
            ("open end", 3, None, 8, [(16, 0, 3), (8, 3, None)]),
            ("goes on as before after its end", 3, 5, 8, [(16, 0, 3), (8, 3, 5), (16, 5, None)]),
            ("from the beginning", 0, None, 8, [(8, 0, None)]),
            ("the same terms change nothing", 3, None, 16, [(16, 0, None)]),
            ("ending a quota", 3, None, None, [(16, 0, 3)]),
        ],
    )
    def test_cut_the_running_period(
        self,
        case: str,
        begins: int,
        ends: int | None,
        gpus: int | None,
        expected: list[tuple[int, int, int | None]],
    ) -> None:
        assert case
        found = set_periods(
            [Period(SIXTEEN, day(0))],
            since=day(begins),
            until=None if ends is None else day(ends),
            terms=None if gpus is None else QuotaTerms(gpus, LEND),
        )
        assert told(found) == expected

    def test_reject_overlap_with_planned_period(self) -> None:
        planned = [Period(SIXTEEN, day(0), day(9)), Period(EIGHT, day(9))]
        with pytest.raises(OverlapError) as error:
            set_periods(planned, since=day(3), until=None, terms=EIGHT)
        assert error.value.period == planned[1]
        until = set_periods(planned, since=day(3), until=day(9), terms=QuotaTerms(4, LEND))
        assert told(until) == [(16, 0, 3), (4, 3, 9), (8, 9, None)]

    @given(
        edges=st.lists(st.integers(0, 30), min_size=2, max_size=8, unique=True),
        begins=st.integers(0, 30),
        length=st.integers(1, 20),
        gpus=st.integers(0, 9),
    )
    def test_change_nothing_outside_of_given_period(
        self, edges: list[int], begins: int, length: int, gpus: int
    ) -> None:
        edges.sort()
        old = tuple(
            Period(QuotaTerms(100 + n, LEND), day(edges[n]), day(edges[n + 1]))
            for n in range(0, len(edges) - 1, 2)
        )
        since, until, terms = day(begins), day(begins + length), QuotaTerms(gpus, RESERVE)
        if any(since < period.since < until for period in old):
            with pytest.raises(OverlapError):
                set_periods(old, since=since, until=until, terms=terms)
            return
        new = set_periods(old, since=since, until=until, terms=terms)
        for number in range(60):
            found, before = period_at(new, day(number)), period_at(old, day(number))
            if begins <= number < begins + length:
                assert found is not None
                assert found.terms == terms
            else:
                assert (found and found.terms) == (before and before.terms)


def operator() -> Actor:
    user = User.objects.create(username="otto", site_role=User.SiteRole.OPERATOR)
    return Actor(user, "request-1")


def edit(lab: Cluster, tenant: str, gpus: int | None, until: datetime | None = None) -> QuotaEdit:
    terms = None if gpus is None else QuotaTerms(gpus, LEND)
    return QuotaEdit(lab.tenants[tenant].pk, lab.gpu_type.pk, terms, until)


def save(
    lab: Cluster, actor: Actor, edits: list[QuotaEdit], since: datetime, **fields: str
) -> AuditRecord | None:
    basis = fields.pop("basis", None) or basis_of(lab.pool.pk, lab.at)
    return save_quotas(
        actor=actor,
        pool_id=lab.pool.pk,
        pool_name=lab.pool.name,
        book=lab.pool.book,
        edits=edits,
        since=since,
        now=lab.at,
        basis=basis,
        next_round=next_number(lab.pool.pk),
        capacity=gpus_by_type(lab.pool.pk),
        **fields,
    )


def quotas(lab: Cluster, tenant: str) -> list[tuple[int, datetime, datetime | None]]:
    rows = Quota.objects.filter(tenant=lab.tenants[tenant], pool=lab.pool).order_by("valid_from")
    return list(rows.values_list("gpus", "valid_from", "valid_until"))


def numbered(lab: Cluster, actor: Actor, record: AuditRecord) -> AuditRecord:
    """Return the record in the older format, with row numbers instead of names."""
    numbers = {"tenant": lab.tenants["a"].pk, "gpu_type": lab.gpu_type.pk, "name": "a"}
    before, after = (
        {**data, "periods": [{**row, **numbers} for row in data["periods"]]}
        for data in (record.before, record.after)
    )
    with transaction.atomic():
        return write_audit(actor, record.action, record.subject, before=before, after=after)


@pytest.mark.usefixtures("committed_db")
class TestSave:
    def test_closes_running_period_and_opens_new_one(self) -> None:
        lab = cluster({"a": 4, "b": 4})
        record = save(lab, operator(), [edit(lab, "a", 6)], BEGIN + DAY, reason="a paper is due")
        assert quotas(lab, "a") == [(4, BEGIN, BEGIN + DAY), (6, BEGIN + DAY, None)]
        assert quotas(lab, "b") == [(4, BEGIN, None)]
        assert record is not None
        assert (record.subject, record.reason) == (f"pool {lab.pool.name}", "a paper is due")
        assert record.request_id == "request-1"
        assert [row["gpus"] for row in record.before["periods"]] == [4]
        assert [row["gpus"] for row in record.after["periods"]] == [4, 6]

    @pytest.mark.parametrize("is_old", [False, True])
    def test_is_recorded_by_names_and_can_be_undone(self, is_old: bool) -> None:
        """The log is append-only, so old records will always contain row numbers."""
        lab = cluster({"a": 4, "b": 4})
        actor = operator()
        record = save(lab, actor, [edit(lab, "a", 6)], BEGIN + DAY)
        assert record is not None
        if is_old:
            record = numbered(lab, actor, record)
        (shown, *_), _ = audit_page(action="quota.saved")
        rows = [row for data in (shown.before, shown.after) for row in data["periods"]]
        assert {(row["tenant"], row["gpu_type"]) for row in rows} == {("a", "v100")}
        assert not any(name.endswith("id") or name == "name" for row in rows for name in row)
        undo_quotas(
            actor=actor, pool_id=lab.pool.pk, record_id=record.pk,
            next_round=record.after["next_round"],
        )  # fmt: skip
        assert quotas(lab, "a") == [(4, BEGIN, None)]

    def test_names_diluted_tenants_if_quotas_exceed_capacity(self) -> None:
        """The next round scales 12 and 4 GPUs to 6 and 2 of the pool's 8."""
        lab = cluster({"a": 4, "b": 4})
        Tenant.objects.filter(slug="b").update(name="Team B")
        edits = [edit(lab, "a", 12)]
        impact = quota_impact(
            pool_id=lab.pool.pk, edits=edits, since=BEGIN + DAY, now=read_clock(lab.pool.pk)
        )
        record = save(lab, operator(), edits, BEGIN + DAY)
        assert record is not None
        (row,) = record.after["dilutes"]
        assert impact.dilutes == (row,)
        assert (row["gpu_type"], row["quotas"], row["capacity"]) == ("v100", 16, 8)
        loser = {"tenant": "b", "name": "Team B", "quota": 4, "before": 4, "after": 2}
        assert row["tenants"] == [loser]
        assert impact.warnings == [
            (
                "v100: quotas sum to 16 GPUs, the pool has 8 from 2030-01-02 00:00 on."
                " Each quota shrinks in proportion: Team B 2 instead of 4."
            )
        ]

    @pytest.mark.parametrize(("tenant", "gpus"), [("a", 2), ("b", 4), ("a", None)])
    def test_dilutes_no_tenant_within_capacity(self, tenant: str, gpus: int | None) -> None:
        lab = cluster({"a": 4, "b": 3})
        record = save(lab, operator(), [edit(lab, tenant, gpus)], BEGIN + DAY)
        assert record is not None
        assert "dilutes" not in record.after

    def test_change_from_now_is_used_by_next_round(self) -> None:
        lab = cluster({"a": 4, "b": 4})
        lab.submit("a", 8, 100_000)
        lab.round()
        lab.at += timedelta(seconds=5)
        save(lab, operator(), [edit(lab, "a", 2), edit(lab, "b", 6)], lab.at)
        result = lab.round(after_s=5)
        assert result.round is not None
        assert {row["tenant"]: row["quota"] for row in result.round.shares} == {
            lab.tenants["a"].pk: 2,
            lab.tenants["b"].pk: 6,
        }

    def test_writes_nothing_if_unchanged(self) -> None:
        lab = cluster({"a": 4})
        assert save(lab, operator(), [edit(lab, "a", 4)], BEGIN + DAY) is None
        assert not AuditRecord.objects.exists()

    def test_names_field_of_overlapping_period(self) -> None:
        lab = cluster({"a": 4})
        actor = operator()
        save(lab, actor, [edit(lab, "a", 6)], BEGIN + 9 * DAY)
        with pytest.raises(InvalidInputError) as error:
            save(lab, actor, [edit(lab, "a", 5)], BEGIN + DAY)
        assert error.value.by_field == {
            "quotas[0].until": "A period with 6 GPUs begins 2030-01-10 00:00 UTC: end this one by"
            " then."
        }
        assert AuditRecord.objects.count() == 1

    @pytest.mark.parametrize(
        ("terms", "field"),
        [
            (QuotaTerms(-1, LEND), "gpus"),
            (QuotaTerms(10**9, LEND), "gpus"),
            (QuotaTerms(4, "STEAL"), "mode"),
            (QuotaTerms(4, LEND, borrow_limit=-1), "borrow_limit"),
            (QuotaTerms(4, LEND, lend_limit=-1), "lend_limit"),
        ],
    )
    def test_rejects_invalid_quota(self, terms: QuotaTerms, field: str) -> None:
        lab = cluster({"a": 4})
        key = lab.tenants["a"].pk, lab.gpu_type.pk
        with pytest.raises(InvalidInputError) as error:
            plan_quotas(lab.pool.pk, [QuotaEdit(*key, terms, None)], since=lab.at, now=lab.at)
        assert list(error.value.by_field) == [f"quotas[0].{field}"]

    def test_rejects_changes_of_the_past(self) -> None:
        lab = cluster({"a": 4})
        lab.at += DAY
        with pytest.raises(InvalidInputError, match="past"):
            save(lab, operator(), [edit(lab, "a", 6)], BEGIN)

    def test_rejects_concurrent_change(self) -> None:
        lab = cluster({"a": 4, "b": 4})
        actor = operator()
        seen = basis_of(lab.pool.pk, lab.at)
        save(lab, actor, [edit(lab, "b", 2)], BEGIN + DAY)
        with pytest.raises(InvalidInputError, match="meanwhile"):
            save(lab, actor, [edit(lab, "a", 6)], BEGIN + DAY, basis=seen)

    @pytest.mark.parametrize("role", ["", "finance", "auditor"])
    def test_is_restricted_to_operators(self, role: str) -> None:
        lab = cluster({"a": 4})
        other = Actor(User.objects.create(username="x", site_role=role))
        with pytest.raises(PermissionDenied):
            save(lab, other, [edit(lab, "a", 6)], BEGIN + DAY)
        assert quotas(lab, "a") == [(4, BEGIN, None)]

    def test_is_denied_after_role_was_revoked(self) -> None:
        lab = cluster({"a": 4})
        actor = operator()
        User.objects.filter(pk=actor.user.pk).update(site_role="")
        with pytest.raises(PermissionDenied):
            save(lab, actor, [edit(lab, "a", 6)], BEGIN + DAY)

    def test_first_quota_creates_budget(self) -> None:
        lab = cluster({"a": 4, "b": 0}, book="other")
        lab.tenants["b"].budgets.all().delete()
        save(lab, operator(), [edit(lab, "b", 2)], BEGIN + DAY)
        assert lab.tenants["b"].budgets.get().book == "other"


@pytest.mark.usefixtures("committed_db")
class TestUndo:
    @pytest.mark.parametrize("days", [0, 1])
    @pytest.mark.parametrize("gpus", [6, None])
    def test_restores_periods(self, days: int, gpus: int | None) -> None:
        lab = cluster({"a": 4, "b": 4})
        lab.at += timedelta(seconds=3)
        actor = operator()
        before = quotas(lab, "a")
        record = save(lab, actor, [edit(lab, "a", gpus)], lab.at + days * DAY)
        assert record is not None
        undo_quotas(actor=actor, pool_id=lab.pool.pk, record_id=record.pk, next_round=1)
        assert quotas(lab, "a") == before
        assert list(AuditRecord.objects.values_list("action", flat=True).order_by("id")) == [
            "quota.saved",
            "quota.undone",
        ]

    def test_is_rejected_after_next_round(self) -> None:
        lab = cluster({"a": 4})
        lab.submit("a", 1, 1000)
        actor = operator()
        record = save(lab, actor, [edit(lab, "a", 6)], BEGIN + DAY)
        assert record is not None
        lab.round()
        with pytest.raises(InvalidInputError, match="round has already used it"):
            undo_quotas(
                actor=actor,
                pool_id=lab.pool.pk,
                record_id=record.pk,
                next_round=next_number(lab.pool.pk),
            )

    def test_rejects_second_undo(self) -> None:
        lab = cluster({"a": 4})
        actor = operator()
        record = save(lab, actor, [edit(lab, "a", 6)], BEGIN + DAY)
        assert record is not None
        undo_quotas(actor=actor, pool_id=lab.pool.pk, record_id=record.pk, next_round=1)
        with pytest.raises(InvalidInputError, match="changed it since"):
            undo_quotas(actor=actor, pool_id=lab.pool.pk, record_id=record.pk, next_round=1)
        assert quotas(lab, "a") == [(4, BEGIN, None)]


@pytest.mark.usefixtures("committed_db")
class TestPreview:
    def test_matches_next_round(self) -> None:
        """The change starts now, so its estimate equals the following round."""
        lab = cluster({"a": 4, "b": 4}, nodes=2, gpus=4, lease_s=20, policy="ltgf")
        for tenant in ("a", "b"):
            for _ in range(8):
                lab.submit(tenant, 1, 100_000)
        lab.rounds(2, every_s=10)
        lab.at += timedelta(seconds=2)
        edits = [edit(lab, "a", 6), edit(lab, "b", 2)]
        impact = quota_impact(pool_id=lab.pool.pk, edits=edits, since=lab.at, now=lab.now())
        assert impact.error == ""
        save(lab, operator(), edits, lab.at)
        result = lab.round(after_s=8)
        assert result.round is not None
        assert (result.round.number, result.round.at) == (impact.number, impact.at)
        shares = {row["tenant"]: row for row in result.round.shares}
        for row in impact.rows:
            share = shares[row.tenant]
            assert row.after.quota == share["quota"]
            assert row.after.deserved == share["deserved"]
            assert row.after.got == share["own"] + share["borrowed"]
        assert {row.tenant: row.before.quota for row in impact.rows} == {
            lab.tenants["a"].pk: 4,
            lab.tenants["b"].pk: 4,
        }

    def test_writes_nothing(self) -> None:
        lab = cluster({"a": 4, "b": 4})
        lab.submit("a", 1, 1000)
        lab.submit("b", 8, 1000)
        before = Round.objects.count(), Lease.objects.count(), quotas(lab, "a")
        jobs = list(Job.objects.order_by("id").values())
        edits = [edit(lab, "a", 8), edit(lab, "b", None)]
        impact = quota_impact(pool_id=lab.pool.pk, edits=edits, since=lab.at, now=lab.now())
        assert any(row.differs for row in impact.rows)
        assert (Round.objects.count(), Lease.objects.count(), quotas(lab, "a")) == before
        assert list(Job.objects.order_by("id").values()) == jobs
        assert not AuditRecord.objects.exists()

    def test_current_quotas_give_current_snapshot(self) -> None:
        lab = cluster({"a": 5, "b": 9}, nodes=2, gpus=4)
        lab.submit("a", 4, 1000)
        lab.submit("b", 4, 1000)
        lab.round()
        snapshot = read_snapshot(lab.pool.pk, number=2, at=BEGIN + timedelta(seconds=10))
        nominal = {
            key: periods[0].terms for key, periods in quota_periods(lab.pool.pk, lab.at).items()
        }
        types = dict(GpuType.objects.values_list("id", "name"))
        same = with_quotas(snapshot, nominal, types)
        assert same == snapshot
        assert decide_round(same) == decide_round(snapshot)


@pytest.mark.usefixtures("committed_db")
class TestAuditLog:
    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE tenants_auditrecord SET reason = 'never'",
            "DELETE FROM tenants_auditrecord",
            "TRUNCATE tenants_auditrecord",
        ],
    )
    @pytest.mark.parametrize("alias", ["default", "owner"])
    def test_is_immutable(self, statement: str, alias: str) -> None:
        from django.db import connections

        lab = cluster({"a": 4})
        save(lab, operator(), [edit(lab, "a", 6)], BEGIN + DAY)
        with (
            pytest.raises(DatabaseError),
            transaction.atomic(using=alias),
            connections[alias].cursor() as cursor,
        ):
            cursor.execute(statement)
        assert AuditRecord.objects.get().reason == ""

    def test_rejects_record_outside_of_transaction(self) -> None:
        from tenants.audit import write_audit

        actor = operator()
        assert not connection.in_atomic_block
        with pytest.raises(RuntimeError):
            write_audit(actor, "quota.saved", "pool x")
