"""Test the operator's credit for promised starts that are late: in rounds, books and checks.

A gang of beta is promised a start at 00:15:00. Rounds stop before that time, so it starts late.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from billing.checks import run_checks
from billing.metering import meter_pool, settle, settle_pool
from billing.models import Account, MeterCursor, Transfer
from billing.selectors.late_starts import LateCredit, late_credits
from billing.selectors.statements import account_statement
from evenshare_core.policies import registry
from evenshare_core.policies.options import OptionError
from scheduling.engine.clock import PoolNow
from scheduling.models import Job, Lease, LeaseEvent, Node, Pool, Round
from scheduling.selectors.rounds.promised_starts import list_promised
from scheduling.services.jobs import cancel_job
from tests.factories import BEGIN, Cluster, cluster
from tests.scope import nobody
from tests.stages import staged

LEASE_S, HOUR_S = 900, 3600
RATE = 2000  # thousandths of a credit per GPU-hour


def options(rate: int) -> dict[str, Any]:
    return {
        "promises": True, "min_runtime_s": 60, "pays": False, "gangs_per_round": 0,
        "late_credit_milli": rate,
    }  # fmt: skip # rows of what belongs together


def promised() -> Cluster:
    """Return a pool at 00:00:20 that promises beta's gang of 8 GPUs a start at 00:15:00."""
    quotas = {"alpha": 4, "beta": 8, "gamma": 4}
    lab = cluster(
        quotas, nodes=2, gpus=8, policy="evenshare", options=options(RATE), lease_s=LEASE_S
    )
    for tenant, gpus in (("alpha", 1), *[("alpha", 2)] * 4, ("gamma", 2)):
        lab.submit(tenant, gpus, 40_000)
    lab.round()
    lab.submit("beta", 8, 40_000)
    lab.round(after_s=10)
    lab.round(after_s=10)
    return lab


lab = staged(promised)


def start_late(lab: Cluster, late_s: int) -> None:
    """Run the first round after the promised time, so late that the gang starts `late_s` late."""
    (promise,) = list_promised([lab.pool.pk])[lab.pool.pk]
    lab.at = promise.starts_at
    lab.round(after_s=late_s)
    assert gang().state == "running"


def gang() -> Job:
    return Job.objects.filter(tenant__slug="beta").latest("id")


def cancel(second: int) -> None:
    """Cancel the gang at a time in seconds after the beginning."""
    at = BEGIN + timedelta(seconds=second)
    cancel_job(job=gang(), now=PoolNow(at, at, 1, paused=False))


def set_rate(lab: Cluster, rate: int) -> None:
    Pool.objects.filter(pk=lab.pool.pk).update(options=options(rate))


def promise_again(lab: Cluster) -> None:
    """Cancel the gang, and submit it again with a new promise, 20 s later."""
    cancel(20)
    lab.round(after_s=10)
    lab.submit("beta", 8, 40_000)
    lab.round(after_s=10)
    lab.round(after_s=10)
    assert gang().reason_code == "promised"


def bill(lab: Cluster) -> None:
    with nobody():
        while meter_pool(lab.pool.pk).events:
            pass
        settle_pool(lab.pool.pk)


def settled(lab: Cluster) -> list[Transfer]:
    """Close the present hour, and return the credits; all checks must pass."""
    lab.submit("gamma", 1, 10)
    lab.round(after_s=HOUR_S)
    bill(lab)
    assert violations() == []
    return list(Transfer.objects.filter(code="late_start").order_by("effective_at", "id"))


def violations() -> list[str]:
    return [text for result in run_checks() for text in result.violations]


def sides(transfer: Transfer) -> dict[str, str]:
    return {
        entry.account.tenant.slug if entry.account.tenant else "operator": str(entry.amount)
        for entry in transfer.entries.select_related("account__tenant")
    }


class TestCredit:
    def test_is_gpus_times_rate_times_lateness(self, lab: Cluster) -> None:
        """8 GPUs x 2 credits x 90 s / 3,600 s = 0.4 credits."""
        start_late(lab, 90)
        (credit,) = settled(lab)
        assert sides(credit) == {"operator": "-0.400000", "beta": "0.400000"}
        assert credit.effective_at == BEGIN + timedelta(hours=1)
        assert credit.data == {
            "job": str(gang().uid),
            "gpu_type": "v100",
            "gpus": 8,
            "rate": "2.000000",
            "latest_at": "2030-01-01T00:15:00+00:00",
            "until": "2030-01-01T00:16:30+00:00",
            "started": True,
            "promised_round": 2,
            "round": 4,
        }

    def test_start_in_time_earns_nothing(self, lab: Cluster) -> None:
        start_late(lab, 0)
        assert settled(lab) == []

    def test_is_rounded_to_a_micro_credit(self, lab: Cluster) -> None:
        start_late(lab, 10)
        (credit,) = settled(lab)
        assert sides(credit)["beta"] == "0.044444"

    def test_belongs_to_hour_of_round_that_found_it(self, lab: Cluster) -> None:
        start_late(lab, 45 * 60)
        (credit,) = settled(lab)
        assert sides(credit)["beta"] == "12.000000"
        assert credit.effective_at == BEGIN + timedelta(hours=2)
        assert settled(lab) == [credit]

    def test_second_late_start_is_a_second_transfer(self, lab: Cluster) -> None:
        start_late(lab, 90)
        lab.submit("beta", 8, 40_000)
        lab.round(after_s=10)  # promised for 00:31:30
        start_late(lab, 180)
        assert [sides(row)["beta"] for row in settled(lab)] == ["0.400000", "0.800000"]

    def test_is_part_of_statement(self, lab: Cluster) -> None:
        start_late(lab, 90)
        settled(lab)
        until = BEGIN + timedelta(hours=3)
        beta = account_statement(lab.tenants["beta"].pk, "main", since=BEGIN, until=until)
        (row,) = (row for row in beta.counterparties if row.code == "late_start")
        assert (row.tenant_id, str(row.earned), str(row.paid)) == (None, "0.400000", "0.000000")
        assert beta.closing == Account.objects.get(tenant=lab.tenants["beta"]).balance
        house = account_statement(None, "main", since=BEGIN, until=until)
        (row,) = (row for row in house.counterparties if row.code == "late_start")
        assert (str(row.earned), str(row.paid)) == ("0.000000", "0.400000")


class TestExcuse:
    def test_lost_node_earns_nothing(self, lab: Cluster) -> None:
        node = Lease.objects.filter(tenant__slug="alpha").earliest("id").placement[0][0]
        Node.objects.filter(pk=node).update(state="lost")
        lab.round(after_s=LEASE_S + 70)
        assert Round.objects.latest("number").summary["promises"]["excused"] == 1
        assert settled(lab) == []

    def test_cancelled_job_earns_until_it_was_cancelled(self, lab: Cluster) -> None:
        cancel(LEASE_S + 45)
        lab.round(after_s=LEASE_S + 70)
        assert Round.objects.latest("number").summary["promises"]["late"] == 1
        (credit,) = settled(lab)
        assert sides(credit)["beta"] == "0.200000"
        assert (credit.data["started"], credit.data["until"]) == (
            False,
            "2030-01-01T00:15:45+00:00",
        )

    def test_job_cancelled_in_time_earns_nothing(self, lab: Cluster) -> None:
        cancel(LEASE_S)
        lab.round(after_s=LEASE_S + 70)
        assert Round.objects.latest("number").summary["promises"]["late"] == 0
        assert settled(lab) == []


class TestRate:
    def test_is_that_of_round_that_promised(self, lab: Cluster) -> None:
        set_rate(lab, 0)
        lab.round(after_s=10)
        start_late(lab, 90)
        (credit,) = settled(lab)
        assert sides(credit)["beta"] == "0.400000"

    def test_does_not_apply_to_earlier_promises(self, lab: Cluster) -> None:
        set_rate(lab, 0)
        promise_again(lab)
        set_rate(lab, 5000)
        start_late(lab, 90)
        assert settled(lab) == []
        assert not LeaseEvent.objects.filter(kind="late_start").exists()

    def test_applies_from_next_promise(self, lab: Cluster) -> None:
        set_rate(lab, 5000)
        promise_again(lab)
        start_late(lab, 60)
        (credit,) = settled(lab)
        assert sides(credit)["beta"] == "0.666667"

    def test_is_none_by_default_or_without_promises(self) -> None:
        assert not registry.options("evenshare", {"promises": True}).late_credit_micro
        with pytest.raises(OptionError, match="late_credit_milli: Enter a whole number from 0 to"):
            registry.options("evenshare", options(-1))
        without = options(RATE) | {"promises": False}
        assert not registry.options("evenshare", without).late_credit_micro


class TestSettlement:
    def test_repeated_posts_nothing_new(self, lab: Cluster) -> None:
        start_late(lab, 90)
        (credit,) = settled(lab)
        MeterCursor.objects.update(settled_until=BEGIN)
        bill(lab)
        assert settled(lab) == [credit]

    def test_that_crashed_posts_once(self, lab: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        start_late(lab, 90)
        lab.round(after_s=HOUR_S)

        def crash(point: str) -> None:
            if point == "settle.before_commit":
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(settle, "fault_point", crash)
            with pytest.raises(KeyboardInterrupt):
                bill(lab)
        assert not Transfer.objects.exists()
        assert len(settled(lab)) == 1

    @pytest.mark.parametrize(
        ("posted", "amount"),
        [({}, 399_999), ({"rate": "1.000000"}, 400_000), ({"until": "never"}, 400_000)],
        ids=["amount", "rate", "time"],
    )
    def test_planted_credit_is_reported(
        self, lab: Cluster, posted: dict[str, Any], amount: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        start_late(lab, 90)
        lab.round(after_s=HOUR_S)

        def planted(*args: Any, **times: Any) -> list[LateCredit]:
            rows = late_credits(*args, **times)
            return [replace(r, amount_micro=amount, facts=r.facts | posted) for r in rows]

        with monkeypatch.context() as patch:
            patch.setattr(settle, "late_credits", planted)
            bill(lab)
        (text,) = violations()
        assert "is posted" in text

    def test_missing_credit_is_reported(
        self, lab: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        start_late(lab, 90)
        lab.round(after_s=HOUR_S)
        with monkeypatch.context() as patch:
            patch.setattr(settle, "late_credits", lambda *_, **__: [])
            bill(lab)
        (text,) = violations()
        assert ": None is posted, " in text
