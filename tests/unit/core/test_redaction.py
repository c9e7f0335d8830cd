"""Test that a bundle has all data that its round read, and no other data."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from evenshare_core.disclosure.bundle import make_bundle
from evenshare_core.disclosure.redaction import redacted
from evenshare_core.domain.deadlines import Deadline, DeadlineClass, DeadlineStep
from evenshare_core.domain.entitlements import Entitlement, Tenant
from evenshare_core.domain.estimates import EstimateSource, JobEstimate
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.measured_speeds import MeasuredProfile, MeasuredSpeed
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.snapshot import JobService, PoolPrice, Snapshot, Surcharge
from evenshare_core.domain.utilities import Utility, UtilityKind
from evenshare_core.domain.values import canonical_bytes
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.policy import Private
from evenshare_core.policies.registry import POLICIES
from evenshare_core.units import HOUR_US, SECOND_US
from tests.unit.core.snapshots import job, snapshot
from tests.unit.core.test_bundles import naming_of

PRICE, CREDIT = 2_000_000, 10**12 + 7
# For each kind of data, a value that occurs nowhere else in the round.
FIGURES = {
    Private.ESTIMATE: 7_654_321_000,
    Private.DEADLINE: 98_765_432_100,
    Private.ESTIMATES: 424_243,
    Private.DEADLINES: 87_654_321_001,
    Private.UTILITIES: 13_131_313,
    Private.MEASURED: 31_337,
}


def private_round(policy: str, options: dict[str, Any] | None = None, **fields: Any) -> Snapshot:
    """Return a round with two tenants and one job each; the first job has every optional field."""
    first = replace(
        job(11, 2, tenant=1), estimate_us=FIGURES[Private.ESTIMATE],
        deadline_us=FIGURES[Private.DEADLINE], profile=21,
    )  # fmt: skip
    speed = MeasuredSpeed(1000, 5, FIGURES[Private.MEASURED])
    step = DeadlineStep(FIGURES[Private.DEADLINES], 50)
    asked = snapshot(
        [first, job(12, 2, tenant=2)], nodes={1: 8}, policy=policy, options=options or {},
        policy_version=POLICIES[policy].version, at_us=10 * SECOND_US,
    )  # fmt: skip
    new = replace(
        asked,
        prices=(PoolPrice("v100", PRICE, 0, 8, PRICE, 3000),),
        profiles=(Profile(21, 1, (("v100", 1000),)),),
        utilities=(Utility(11, UtilityKind.BID, FIGURES[Private.UTILITIES]),),
        deadlines=(Deadline(11, DeadlineClass.STRICT, (step,)),),
        estimates=(
            JobEstimate(11, EstimateSource.DECLARED, 10, overhead_us=FIGURES[Private.ESTIMATES]),
        ),
        profilers=(12,),
        measured=(MeasuredProfile(21, (("v100", 1000),), (("v100", speed),)),),
    )
    return replace(new, **fields)


def bundle_of(asked: Snapshot) -> bytes:
    return make_bundle(
        asked, decide_round(asked), pool="p", naming=naming_of(asked), certificate=None,
        superseded=(), versions={},
    )  # fmt: skip


def tells(data: bytes, figure: int) -> bool:
    return str(figure).encode() in data


class TestPrivateJobData:
    @pytest.mark.parametrize("policy", sorted(POLICIES))
    def test_bundle_contains_only_data_read_by_policy(self, policy: str) -> None:
        reads = POLICIES[policy].reads(POLICIES[policy].options_type())
        data = bundle_of(private_round(policy))
        shown = {part for part, figure in FIGURES.items() if tells(data, figure)}
        assert shown == reads - {Private.PROFILERS}
        profilers = msgspec.json.decode(data)["snapshot"]["profilers"]
        assert bool(profilers) is (Private.PROFILERS in reads)

    @pytest.mark.parametrize(
        ("policy", "options", "more"),
        [
            ("ltgf", {"deadline_bonus": 1.0}, {Private.DEADLINE}),
            ("evenshare", {"estimates": "given"}, {Private.ESTIMATE}),
            ("evenshare", {"estimates": "deadlines"}, {Private.ESTIMATE, Private.DEADLINES}),
        ],
    )
    def test_bundle_contains_data_read_by_option(
        self, policy: str, options: dict[str, Any], more: set[Private]
    ) -> None:
        data = bundle_of(private_round(policy, options))
        assert {part for part, figure in FIGURES.items() if tells(data, figure)} == more

    def test_schema_version_depends_only_on_remaining_data(self) -> None:
        assert redacted(private_round("ltgf")).schema == 2
        assert redacted(private_round("market")).schema == 6

    @pytest.mark.parametrize("policy", sorted(POLICIES))
    def test_redaction_does_not_change_decision(self, policy: str) -> None:
        asked = private_round(policy)
        assert canonical_bytes(decide_round(redacted(asked))) == canonical_bytes(
            decide_round(asked)
        )


def limited(most_micro: int | None, **fields: Any) -> Snapshot:
    """Return a round in which a job has a maximum price; both GPU types of the pool have prices."""
    asked = private_round("ltgf", **fields)
    first, other = asked.jobs
    return replace(asked, jobs=(replace(first, max_price_micro=most_micro), other))


def kept_limit(asked: Snapshot) -> int | None:
    return redacted(asked).jobs[0].max_price_micro


class TestMaximumPrice:
    @pytest.mark.parametrize(
        ("most_micro", "kept"),
        [(None, None), (PRICE - 1, PRICE - 1), (PRICE, None), (9 * PRICE, None)],
    )
    def test_is_kept_if_posted_price_exceeds_it(
        self, most_micro: int | None, kept: int | None
    ) -> None:
        assert kept_limit(limited(most_micro)) == kept

    def test_compares_only_accepted_gpu_types(self) -> None:
        prices = (PoolPrice("a100", 5 * PRICE, 0, 8, PRICE, 3000), *limited(1).prices)
        anywhere = limited(3 * PRICE, prices=prices)
        assert kept_limit(anywhere) == 3 * PRICE
        first, other = anywhere.jobs
        narrow = replace(anywhere, jobs=(replace(first, gpu_types=("v100",)), other))
        assert kept_limit(narrow) is None

    def test_compares_held_and_claimed_types_no_longer_accepted(self) -> None:
        """A job may restrict its accepted types later.

        This does not change its lease and its claim.
        """
        prices = (PoolPrice("a100", 5 * PRICE, 0, 8, PRICE, 3000), *limited(1).prices)
        asked = limited(3 * PRICE, prices=prices)
        first, other = asked.jobs
        narrow = replace(asked, jobs=(replace(first, gpu_types=("v100",)), other))
        lease = Lease(31, 11, 1, "a100", ((1, 2),), 0, 99, 1, 0, 2, 5 * PRICE)
        claim = JobService(11, 1, "a100", 2, 1, 0, 0, 0, 0)
        assert kept_limit(replace(narrow, leases=(lease,))) == 3 * PRICE
        service = replace(narrow.service, jobs=(claim,))
        assert kept_limit(replace(narrow, service=service)) == 3 * PRICE

    def test_is_removed_if_equal_to_posted_price(self) -> None:
        prices = (PoolPrice("a100", 5 * PRICE, 0, 8, PRICE, 3000), *limited(1).prices)
        asked = limited(PRICE, prices=prices)
        first, other = asked.jobs
        assert kept_limit(replace(asked, jobs=(replace(first, gpu_types=("v100",)), other))) is None

    def test_is_kept_as_bid_under_market_policy(self) -> None:
        assert kept_limit(replace(limited(9 * PRICE), policy="market")) == 9 * PRICE


class TestCredit:
    @pytest.mark.parametrize(
        ("spendable_micro", "kept"), [(None, False), (1, True), (0, True), (CREDIT, False)]
    )
    def test_is_kept_if_it_may_bind(self, spendable_micro: int | None, kept: bool) -> None:
        tenants = (Tenant(1, spendable_micro), Tenant(2))
        asked = private_round("ltgf", tenants=tenants)
        first = redacted(asked).tenants[0]
        assert (first.spendable_micro is not None) is kept
        assert not tells(bundle_of(asked), CREDIT)

    def test_is_removed_if_it_covers_whole_pool(self) -> None:
        """A long queue would cost more than the pool's GPUs, and queued jobs change surcharges."""
        jobs = tuple(Job(number, 1, 2, number, ("v100",)) for number in range(1, 100))
        asked = replace(
            private_round("ltgf"), jobs=jobs, deadlines=(), lease_us=HOUR_US, profiles=(),
            tenants=(Tenant(1, 20 * PRICE), Tenant(2)),
            entitlements=(Entitlement(1, "v100", 0), Entitlement(2, "v100", 8)),
        )  # fmt: skip
        assert redacted(asked).tenants[0].spendable_micro is None
        # The cost of all GPUs of the pool plus a gang (ten GPUs for an hour), plus a micro-credit
        # per GPU.
        for spendable_micro, kept in ((10 * PRICE + 10, None), (10 * PRICE + 9, 10 * PRICE + 9)):
            at_most = replace(asked, tenants=(Tenant(1, spendable_micro), Tenant(2)))
            assert redacted(at_most).tenants[0].spendable_micro == kept
        surcharged = replace(asked, surcharges=(Surcharge("v100", 100, 1000),))
        assert redacted(surcharged).tenants[0].spendable_micro == 20 * PRICE
