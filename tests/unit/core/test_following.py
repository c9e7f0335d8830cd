"""Test that rounds start from the state after the previous round; manipulations are reported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from evenshare_core.domain.backoff import Backoff
from evenshare_core.domain.decision import End
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.reasons import EndReason
from evenshare_core.domain.snapshot import Change, ChangeKind, Snapshot, Surcharge
from evenshare_core.policies.registry import POLICIES
from evenshare_core.units import SECOND_US
from evenshare_core.verification.following import breaks
from evenshare_core.verification.following_ids import StoredRound
from tests.unit.core.following_rounds import history

Bend = Callable[[Snapshot], Snapshot]


def bent(number: int, bend: Bend) -> tuple[str, ...]:
    """Return the violations that are reported for a manipulated round of the history."""
    rounds = history()
    before, after = rounds[number - 2], rounds[number - 1]
    changed = StoredRound(bend(after.snapshot), after.decision, after.superseded)
    return breaks(before, changed)


def row_of(rows: Sequence[Any], job: int) -> Any:
    return next(row for row in rows if getattr(row, "job", getattr(row, "id", 0)) == job)


def with_lease(snapshot: Snapshot, job: int, **fields: Any) -> Snapshot:
    """Return the snapshot with changed fields of a job's lease."""
    leases = tuple(replace(row, **fields) if row.job == job else row for row in snapshot.leases)
    return replace(snapshot, leases=leases)


def with_job(snapshot: Snapshot, job: int, **fields: Any) -> Snapshot:
    jobs = tuple(replace(row, **fields) if row.id == job else row for row in snapshot.jobs)
    return replace(snapshot, jobs=jobs)


def with_claim(snapshot: Snapshot, tenant: int, **fields: Any) -> Snapshot:
    service = snapshot.service
    claims = tuple(
        replace(row, **fields) if row.tenant == tenant else row for row in service.claims
    )
    return replace(snapshot, service=replace(service, claims=claims))


def with_changes(snapshot: Snapshot, *changes: Change) -> Snapshot:
    changed = sorted((*snapshot.changes, *changes), key=lambda change: change.at_us)
    return replace(snapshot, changes=tuple(changed))


class TestHistory:
    @pytest.mark.parametrize("policy", sorted(POLICIES))
    def test_every_policy_has_no_breaks(self, policy: str) -> None:
        assert [breaks(*two) for two in pairwise(history(policy))] == [(), (), ()]

    def test_fixture_has_new_running_and_renewed_leases(self) -> None:
        one, two, three, four = history()
        assert {row.job for row in one.decision.grants} == {11, 12}
        assert [(row.job, row.term) for row in two.snapshot.leases] == [(11, 1), (12, 1)]
        assert {row.job for row in three.decision.renewals} == {12}
        assert row_of(four.snapshot.leases, 12).term == 2

    def test_allows_operator_changes_of_prices_and_quotas(self) -> None:
        def bend(snapshot: Snapshot) -> Snapshot:
            prices = tuple(replace(row, base_micro=1, theta_milli=3) for row in snapshot.prices)
            quotas = tuple(replace(row, gpus=1) for row in snapshot.entitlements)
            changed = [
                Change(snapshot.at_us, ChangeKind.QUOTA, row.tenant, 0, 1, ("v100",))
                for row in quotas
            ]
            return with_changes(replace(snapshot, prices=prices, entitlements=quotas), *changed)

        assert bent(2, bend) == ()

    def test_allows_policy_change_with_empty_memory(self) -> None:
        assert bent(3, lambda snapshot: replace(snapshot, policy="fifo", memory={})) == ()


class TestSums:
    """Each round starts with the sums that the previous round left: tenants, classes, jobs."""

    def test_reports_lowered_sum_with_both_values(self) -> None:
        found = bent(2, lambda snapshot: with_claim(snapshot, 2, alloc_gpu_us=7))
        name = "The sums of tenant 2 for v100 are not those that round 1 left:"
        assert found == (f"{name} alloc_gpu_us 7 instead of 0.",)

    def test_reports_changed_class_sum(self) -> None:
        def bend(snapshot: Snapshot) -> Snapshot:
            first, *rest = snapshot.service.classes
            rows = (replace(first, fair_gpu_us=first.fair_gpu_us + 1), *rest)
            return replace(snapshot, service=replace(snapshot.service, classes=rows))

        (found,) = bent(2, bend)
        assert "that ask for" in found
        assert "fair_gpu_us" in found

    def test_reports_changed_job_sum(self) -> None:
        def bend(snapshot: Snapshot) -> Snapshot:
            rows = tuple(
                replace(row, baseline_gpu_us=5) if row.job == 13 else row
                for row in snapshot.service.jobs
            )
            return replace(snapshot, service=replace(snapshot.service, jobs=rows))

        (found,) = bent(2, bend)
        assert found.startswith("The sums of job 13 are not those that round 1 left: baseline")

    @pytest.mark.parametrize("part", ["claims", "classes", "jobs"])
    def test_reports_missing_row(self, part: str) -> None:
        def bend(snapshot: Snapshot) -> Snapshot:
            rows = getattr(snapshot.service, part)[:-1]
            return replace(snapshot, service=replace(snapshot.service, **{part: rows}))

        assert any("are missing, and round 1 left some" in text for text in bent(2, bend))

    def test_reports_wrong_instant(self) -> None:
        def bend(snapshot: Snapshot) -> Snapshot:
            return replace(snapshot, service=replace(snapshot.service, at_us=9))

        assert bent(2, bend) == ("The sums are as of 9 µs, and round 1 left them at 10,000 µs.",)

    def test_summarizes_many_differences(self) -> None:
        def bend(snapshot: Snapshot) -> Snapshot:
            rows = tuple(
                replace(row, job=row.job * 100 + n, baseline_gpu_us=5)
                for row in snapshot.service.jobs
                for n in range(9)
            )
            return replace(snapshot, service=replace(snapshot.service, jobs=rows))

        found = [text for text in bent(2, bend) if "sums of job" in text or "more rows" in text]
        assert len(found) == 6
        assert found[-1] == "35 more rows like the last one differ."


class TestOrder:
    def test_reports_missing_round(self) -> None:
        rounds = history()
        assert breaks(rounds[0], rounds[2]) == (
            "It is round 3, but the previous available round is 1.",
        )

    def test_reports_instant_not_after_previous_round(self) -> None:
        (found,) = bent(2, lambda snapshot: replace(snapshot, at_us=10_000))
        assert found == "It is at 10,000 µs, which is not after round 1 at 10,000 µs."

    def test_reports_other_pool(self) -> None:
        (found,) = bent(2, lambda snapshot: replace(snapshot, pool=4))
        assert "pool 4" in found


class TestPricesAndMemory:
    @pytest.mark.parametrize("field", ["price_micro", "used", "capacity"])
    def test_reports_price_that_was_not_posted(self, field: str) -> None:
        def bend(snapshot: Snapshot) -> Snapshot:
            (price,) = snapshot.prices
            return replace(snapshot, prices=(replace(price, **{field: 123456}),))

        (found,) = bent(2, bend)
        assert found.startswith("The price of v100 is ")
        assert "123" in found

    def test_reports_missing_price(self) -> None:
        (found,) = bent(2, lambda snapshot: replace(snapshot, prices=()))
        assert found == "Round 1 posted a price of v100, which is missing."

    @pytest.mark.parametrize("field", ["queued", "surcharge_micro"])
    def test_reports_surcharge_that_was_not_posted(self, field: str) -> None:
        row = replace(Surcharge("v100", 0, 0), **{field: 7})
        (found,) = bent(2, lambda snapshot: replace(snapshot, surcharges=(row,)))
        assert found.startswith("The surcharge of v100 is ")
        assert found.endswith("and round 1 posted 0 for 0.")

    def test_reports_altered_memory(self) -> None:
        (found,) = bent(3, lambda snapshot: replace(snapshot, memory={"passed": {}}))
        assert found == (
            "The policy's memory is not what round 2 left: 1 of 1 entries differ (passed)."
        )

    @pytest.mark.parametrize(("field", "value"), [("policy", "fifo"), ("policy_version", "2")])
    def test_reports_memory_of_other_policy_or_version(self, field: str, value: str) -> None:
        (found,) = bent(3, lambda snapshot: replace(snapshot, **{field: value}))
        assert "decided by another policy or version (ltgf 1)" in found


class TestChanges:
    def test_reports_change_before_previous_round(self) -> None:
        early = Change(5, ChangeKind.INACTIVE, 2, 13)
        found = bent(2, lambda snapshot: with_changes(snapshot, early))
        assert "A change (inactive) is at 5 µs, not between 10,000 µs and 10,010,000 µs." in found

    def test_reports_change_after_round(self) -> None:
        late = Change(99 * SECOND_US, ChangeKind.INACTIVE, 2, 99)
        found = bent(2, lambda snapshot: with_changes(snapshot, late))
        assert any(text.startswith("A change (inactive) is at 99,000,000 µs") for text in found)

    def test_reports_changes_out_of_order(self) -> None:
        def bend(snapshot: Snapshot) -> Snapshot:
            return replace(snapshot, changes=snapshot.changes[::-1])

        assert any("comes after one at" in text for text in bent(2, bend))

    @pytest.mark.parametrize("gpus", [1, 4])
    def test_reports_quota_changed_without_record(self, gpus: int) -> None:
        def bend(snapshot: Snapshot) -> Snapshot:
            first, *rest = snapshot.entitlements
            return replace(snapshot, entitlements=(replace(first, gpus=gpus), *rest))

        text = f"A quota of v100 is {gpus} GPUs, and 2 are counted in the sums."
        assert bent(2, bend) == (text,)


class TestJobs:
    def test_reports_new_job_without_change(self) -> None:
        (found,) = bent(2, lambda snapshot: replace(snapshot, changes=snapshot.changes[:2]))
        assert found == "The sums do not count job 15, and no change says that it came."

    def test_reports_waiting_job_that_disappeared(self) -> None:
        def bend(snapshot: Snapshot) -> Snapshot:
            return replace(snapshot, jobs=tuple(row for row in snapshot.jobs if row.id != 13))

        (found,) = bent(2, bend)
        assert found == "Job 13, which waited, is gone, and no change says that it is over."

    def test_reports_ended_job_that_is_still_listed(self) -> None:
        over = Change(2 * SECOND_US, ChangeKind.INACTIVE, 2, 13)
        (found,) = bent(2, lambda snapshot: with_changes(snapshot, over))
        assert found == "A change says that job 13 is over, and it is among the jobs."

    @pytest.mark.parametrize(
        ("job", "field", "value"),
        [
            (13, "submitted_us", 1), (13, "gpu_types", ("k80",)), (13, "weight", 3),
            (13, "tenant", 1), (13, "terms", 1), (12, "terms", 0), (13, "gpus", 1),
        ],
    )  # fmt: skip
    def test_reports_altered_job(self, job: int, field: str, value: Any) -> None:
        found = bent(2, lambda snapshot: with_job(snapshot, job, **{field: value}))
        assert any(text.startswith(f"Job {job} differs from the job in round 1") for text in found)

    def test_reports_held_gpus_that_differ_from_gang_size(self) -> None:
        def bend(snapshot: Snapshot) -> Snapshot:
            changes = tuple(
                replace(row, gpus=1) if row.kind is ChangeKind.HOLD else row
                for row in snapshot.changes
            )
            return replace(snapshot, changes=changes)

        assert "A change says that job 12 holds 1 GPUs, and it asks for 2." in bent(2, bend)

    def test_reports_backoff_without_lost_process(self) -> None:
        back = (Backoff(13, 99 * SECOND_US, 1),)
        (found,) = bent(2, lambda snapshot: replace(snapshot, backoffs=back))
        assert found.startswith("Job 13 may not start before 99,000,000 µs, and round 1 said 0 µs")


class TestLeases:
    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("tenant", 2), ("gpu_type", "k80"), ("placement", ((6, 2),)), ("expires_us", 1),
            ("term", 5), ("own", 0), ("borrowed", 2), ("price_micro", 9),
            ("protected_until_us", 77), ("started_us", 1), ("started_us", 3 * SECOND_US),
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("number", [2, 3])
    def test_reports_altered_lease(self, number: int, field: str, value: Any) -> None:
        """The lease is granted in round 2, and continues in round 3."""
        job = {2: 11, 3: 12}[number]
        value = {"tenant": 3 - {2: 1, 3: 2}[number]}.get(field, value)
        found = bent(number, lambda snapshot: with_lease(snapshot, job, **{field: value}))
        name = f"The lease of job {job} is not as round {number - 1} left it:"
        assert any(text.startswith(name) for text in found), found

    @pytest.mark.parametrize("field", ["term", "expires_us", "own", "price_micro"])
    def test_reports_renewal_with_other_terms(self, field: str) -> None:
        (found,) = bent(4, lambda snapshot: with_lease(snapshot, 12, **{field: 1_000}))
        assert found.startswith("The lease of job 12 is not as round 3 left it:")

    def test_reports_lease_without_grant(self) -> None:
        def bend(snapshot: Snapshot) -> Snapshot:
            new = Lease(900, 13, 2, "v100", ((5, 4),), 12_000, 99, 1, 2, 2, 3)
            return replace(snapshot, leases=(*snapshot.leases, new))

        assert bent(2, bend) == ("Job 13 has a lease of 4 v100 that round 1 did not grant.",)

    def test_reports_lease_that_continues_after_end(self) -> None:
        rounds = history()
        ended = history()[3]
        lease = row_of(rounds[2].snapshot.leases, 12)
        decision = replace(rounds[2].decision, renewals=(), ends=(_end(lease),))
        found = breaks(StoredRound(rounds[2].snapshot, decision, ()), ended)
        assert "Job 12 has a lease of 2 v100 that round 3 ended." in found

    def test_reports_lease_that_disappeared(self) -> None:
        def bend(snapshot: Snapshot) -> Snapshot:
            return replace(snapshot, leases=snapshot.leases[1:])

        name = "Job 12 held 2 v100, and its lease is gone: round 2 did not end it, and no change"
        assert any(text.startswith(name) for text in bent(3, bend))

    def test_allows_missing_lease_while_process_stops(self) -> None:
        def bend(snapshot: Snapshot) -> Snapshot:
            jobs = tuple(row for row in snapshot.jobs if row.id != 12)
            return replace(snapshot, leases=snapshot.leases[1:], jobs=jobs)

        assert bent(3, bend) == ()

    def test_allows_missing_lease_that_never_started(self) -> None:
        def bend(snapshot: Snapshot) -> Snapshot:
            changes = tuple(row for row in snapshot.changes if row.job != 11)
            return replace(snapshot, leases=snapshot.leases[1:], changes=changes)

        assert bent(2, bend) == ()

    def test_reports_lease_that_continues_after_release(self) -> None:
        back = Change(15 * SECOND_US, ChangeKind.RELEASE, 2, 12)
        (found,) = bent(3, lambda snapshot: with_changes(snapshot, back))
        assert found.endswith("left it: GPUs given back at 15000000 µs.")

    def test_reports_changed_id_of_running_lease(self) -> None:
        (found,) = bent(3, lambda snapshot: with_lease(snapshot, 12, id=950))
        assert found == "The lease of job 12 differs from the one that round 2 left."

    def test_reports_grant_that_reuses_old_lease_id(self) -> None:
        (found,) = bent(4, lambda snapshot: with_lease(snapshot, 14, id=102))
        assert found == "The lease of job 14 differs from the one that round 3 granted."

    def test_reports_lease_that_continues_after_superseded_renewal(self) -> None:
        three, four = history()[2:]
        why = ({"item": "renewal", "id": 102, "why": "its credit was promised elsewhere"},)
        found = breaks(StoredRound(three.snapshot, three.decision, why), four)
        assert "Job 12 has a lease of 2 v100 that round 3 ended." in found

    def test_reports_lease_of_superseded_grant(self) -> None:
        """If a part of the decision could not be applied, the job of that part is unchanged."""
        one, two, *_ = history()
        why = ({"item": "grant", "id": 11, "why": "the job no longer waited"},)
        found = breaks(StoredRound(one.snapshot, one.decision, why), two)
        assert "Job 11 has a lease of 2 v100 that round 1 did not grant." in found

        after = replace(
            two.snapshot,
            leases=two.snapshot.leases[1:],
            jobs=tuple(row if row.id != 11 else replace(row, terms=0) for row in two.snapshot.jobs),
            changes=tuple(row for row in two.snapshot.changes if row.job != 11),
        )
        superseded = StoredRound(one.snapshot, one.decision, why)
        assert breaks(superseded, StoredRound(after, two.decision, ())) == ()


def _end(lease: Lease) -> End:
    return End(lease.id, lease.job, lease.tenant, EndReason.NOT_RENEWED)
