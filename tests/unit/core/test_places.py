"""Test that jobs exchange places within their tenant, and other tenants see no difference."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from evenshare_core.disclosure.redaction import redacted
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.job_ranks import KEEPS_PLACE, JobRank
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.snapshot import Snapshot, with_schema
from evenshare_core.domain.values import canonical_bytes
from evenshare_core.policies.base import certify_round, decide_round, queue_order
from evenshare_core.policies.registry import POLICIES
from evenshare_core.policies.shared.places import (
    disclosed_ranks,
    exchanged_places,
    places_after,
    with_places,
)
from evenshare_core.verification.following import breaks
from evenshare_core.verification.following_ids import StoredRound
from tests.patience import few
from tests.unit.core.following_rounds import next_round
from tests.unit.core.snapshots import AT_US, job, lease, snapshot


def pool(ranks: tuple[JobRank, ...], policy: str = "fifo", **fields: Any) -> Snapshot:
    """Return a round of equal jobs: tenant 1 has the jobs 1, 3, 5, tenant 2 the jobs 2, 4, 6."""
    jobs = [job(number, 2, tenant=1 if number % 2 else 2) for number in range(1, 7)]
    rest: dict[str, Any] = {
        "policy": policy, "policy_version": POLICIES[policy].version, "nodes": {1: 4, 2: 4},
    }  # fmt: skip # a table
    return with_schema(
        snapshot(
            jobs,
            quotas=(Entitlement(1, "v100", 4), Entitlement(2, "v100", 4)),
            ranks=ranks,
            **(rest | fields),
        )
    )


def granted(decision: Decision, tenant: int) -> list[int]:
    return sorted(row.job for row in decision.grants if row.tenant == tenant)


class TestExchange:
    def test_gives_earliest_place_to_highest_priority(self) -> None:
        snap = pool((JobRank(5, 10), JobRank(1, -1)))
        assert exchanged_places(snap) == {5: 1, 1: 5}
        assert [row.id for row in with_places(snap).jobs] == [1, 2, 3, 4, 5, 6]
        assert granted(decide_round(snap), 1) == [3, 5]
        assert granted(decide_round(replace(snap, ranks=())), 1) == [1, 3]

    def test_positions_and_certificate_use_exchanged_places(self) -> None:
        snap = pool((JobRank(5, 1),))
        decision = decide_round(snap)
        assert queue_order(snap, decision.service) == (5, 2, 1, 4, 3, 6)
        certificate = certify_round(snap, decision)
        assert not certificate.failure
        assert not [row for row in certificate.findings if row.verdict.value == "violated"]

    def test_leaves_running_jobs_and_back_offs_alone(self) -> None:
        running = lease(9, 1, (1, 2), expires_us=AT_US + 1)
        assert exchanged_places(pool((JobRank(5, 1),), leases=[running])) == {5: 3, 3: 5}
        due = lease(9, 1, (1, 2), expires_us=AT_US)
        assert exchanged_places(pool((JobRank(5, 1),), leases=[due])) == {5: 1, 1: 3, 3: 5}

    def test_leaves_jobs_alone_that_keep_their_places(self) -> None:
        snap = pool((JobRank(5, 1), JobRank(1, KEEPS_PLACE)))
        assert exchanged_places(snap) == {5: 3, 3: 5}
        assert exchanged_places(pool((JobRank(1, KEEPS_PLACE),))) == {}

    def test_orders_equal_arrivals_by_microseconds(self) -> None:
        snap = pool((JobRank(5, 1),))
        jobs = tuple(replace(row, submitted_us=7) for row in snap.jobs)
        assert exchanged_places(replace(snap, jobs=jobs)) == {1: 8, 3: 8}
        late = tuple(replace(row, submitted_us=AT_US) for row in snap.jobs)
        assert exchanged_places(replace(snap, jobs=late)) == {}, "never after the round"


class TestPeople:
    def test_person_with_fewest_gpus_comes_first(self) -> None:
        ranks = (JobRank(1, 0, 1), JobRank(3, 0, 1), JobRank(5, 0, 2))
        assert exchanged_places(pool(ranks)) == {5: 3, 3: 5}
        holding = lease(9, 1, (1, 2), expires_us=AT_US + 1)
        assert exchanged_places(pool(ranks, leases=[holding])) == {5: 3, 3: 5}

    def test_priority_orders_jobs_of_one_person_only(self) -> None:
        ranks = (JobRank(1, 0, 1), JobRank(3, 9, 1), JobRank(5, 0, 2))
        assert exchanged_places(pool(ranks)) == {3: 1, 5: 3, 1: 5}


class TestOtherTenants:
    @pytest.mark.parametrize("policy", sorted(POLICIES))
    @settings(max_examples=few())
    @given(st.lists(st.integers(-100, 100), min_size=3, max_size=3), st.integers(0, 2))
    def test_get_the_same_if_jobs_are_alike(
        self, policy: str, priorities: list[int], people: int
    ) -> None:
        ranks = tuple(
            JobRank(number, priority, people and number % people + 1)
            for number, priority in zip((1, 3, 5), priorities, strict=True)
        )
        before, after = decide_round(pool((), policy)), decide_round(pool(ranks, policy))
        assert granted(before, 2) == granted(after, 2)
        assert len(granted(before, 1)) == len(granted(after, 1))

    def test_may_get_less_if_jobs_differ_in_size(self) -> None:
        """The counterexample: a large job at an early place of a strict queue blocks all behind."""
        snap = pool((JobRank(5, 1),))
        jobs = tuple(replace(row, gpus=8) if row.id == 5 else row for row in snap.jobs)
        changes = tuple(replace(one, gpus=8) if one.job == 5 else one for one in snap.changes)
        large = replace(snap, jobs=jobs, changes=changes)
        assert granted(decide_round(replace(large, ranks=())), 2) == [2, 4]
        assert granted(decide_round(large), 2) == []


class TestPlacesAfterRounds:
    def test_started_job_keeps_its_place_and_leaves_its_own_to_the_other(self) -> None:
        snap = pool((JobRank(5, 1), JobRank(1, -1)), nodes={1: 2})
        decision = decide_round(snap)
        assert granted(decision, 1) == [5]
        assert places_after(snap, decision, ()) == {5: 1, 1: 5}
        assert places_after(snap, decision, [{"item": "grant", "id": 5}]) == {}

    def test_other_tenant_is_not_overtaken_after_the_boosted_job_ended(self) -> None:
        """1, 2, 3 arrive; 3 takes the place of 1, so 1 waits at the place of 3, behind 2."""
        snap = pool((JobRank(5, 1), JobRank(1, -1)), nodes={1: 2})
        decision = decide_round(snap)
        places = places_after(snap, decision, ())
        left = [
            replace(row, submitted_us=places.get(row.id, row.submitted_us))
            for row in snap.jobs
            if row.id != 5
        ]
        order = [row.id for row in sorted(left, key=lambda row: row.submitted_us)]
        assert order == [2, 3, 4, 1, 6]

    def test_following_rounds_know_kept_places(self) -> None:
        snap = replace(pool((JobRank(5, 1), JobRank(1, -1)), nodes={1: 2}), lease_us=20_000_000)
        decision = decide_round(snap)
        places = places_after(snap, decision, ())
        after = next_round(snap, decision)
        moved = tuple(
            replace(row, submitted_us=places.get(row.id, row.submitted_us)) for row in after.jobs
        )
        good = replace(after, jobs=moved)
        before = StoredRound(snap, decision, ())
        assert breaks(before, StoredRound(good, decide_round(good), ())) == ()
        texts = breaks(before, StoredRound(after, decide_round(after), ()))
        assert len(texts) == 2
        assert all("submitted_us" in text for text in texts)


class TestDisclosure:
    @given(st.integers(0, 10_000))
    def test_shows_order_without_priorities_and_people(self, seed: int) -> None:
        rng = random.Random(seed)  # noqa: S311 - only test data
        priorities = (*range(-3, 4), KEEPS_PLACE)
        ranks = tuple(
            JobRank(number, rng.choice(priorities), rng.randint(1, 3)) for number in range(1, 7)
        )
        snap = pool(ranks)
        jobs = tuple(
            replace(row, tenant=1, submitted_us=rng.choice((1, 2, 3, AT_US))) for row in snap.jobs
        )
        changes = tuple(replace(one, tenant=1) for one in snap.changes)
        snap = replace(snap, jobs=jobs, changes=changes)
        shown = redacted(snap)
        assert {row.person for row in shown.ranks} <= {0}
        assert exchanged_places(shown) == exchanged_places(snap)
        assert canonical_bytes(decide_round(shown)) == canonical_bytes(decide_round(snap))
        assert disclosed_ranks(shown) == shown.ranks

    def test_shows_nothing_if_order_stays(self) -> None:
        assert redacted(pool((JobRank(1, 5), JobRank(5, -1)))).ranks == ()

    def test_jobs_keep_their_order_by_id(self) -> None:
        ids = [row.id for row in with_places(pool((JobRank(5, 1),))).jobs]
        assert ids == sorted(ids)
        assert isinstance(with_places(pool((JobRank(5, 1),))).jobs[0], Job)
