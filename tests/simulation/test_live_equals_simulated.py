"""A seeded hour through the real engine gives the leases, terms and charges of the simulator.

The engine runs on Postgres with the virtual executor and a clock moved by the test. The simulator
gets the same nodes, quotas, jobs and rules, and shares only the pure core with it. There is a case
with one GPU type, and a case with three types and jobs that run on some of them at different
speeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from billing.metering import meter_pool
from billing.models import UsageLine
from evenshare_core.domain.cluster import Node, Resources
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.instants import to_us
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.reasons import PreemptionRule, Reason
from evenshare_core.money.fixed_point import to_micro
from evenshare_core.policies import registry
from evenshare_core.policies.base import decide_round
from evenshare_core.simulation.simulator import SimulationResult, simulate
from evenshare_core.simulation.state import Rules
from evenshare_core.simulation.workloads import Cluster as SimCluster
from evenshare_core.simulation.workloads import SimJob, job_resources
from evenshare_core.units import SECOND_US
from scheduling.engine.clock import PoolNow
from scheduling.engine.executors.base import Launch, ReportState, lease_token
from scheduling.engine.executors.virtual import VirtualExecutor
from scheduling.engine.rounds import RoundOutcome
from scheduling.models import Job, Lease, LeaseTerm, Round, VirtualWork
from scheduling.models import Node as NodeRow
from scheduling.models import Profile as ProfileRow
from scheduling.selectors.rounds.stored import round_decision, round_values
from scheduling.services.jobs import cancel_job
from tenants.models import Quota
from tests.factories import BEGIN, Cluster, cluster
from tests.round_states import sums_of
from tests.simulation import exported
from tests.toy_policy.preempting import POLICY

pytestmark = pytest.mark.usefixtures("committed_db")

QUOTAS = {"a": 7, "b": 4, "c": 1, "d": 0}
NODES, GPUS, LEASE_S = 3, 4, 120
# by minutes of the run, because a pool fills slowly
JOBS, LEAST_LEASES = {20: 45, 60: 70}, {20: 12, 60: 40}
ROUND_S, HOUR_S = 30, 3600


def arrivals(rng: Random, minutes: int) -> list[int]:
    """Return the seconds after the start at which jobs arrive."""
    return sorted(rng.randrange(60 * minutes) for _ in range(JOBS[minutes]))


def submit_all(lab: Cluster, seed: int, *, limited: bool, minutes: int = 60) -> list[SimJob]:
    """Submit jobs in order of arrival; some fail, some may have a price limit."""
    rng = Random(seed)  # noqa: S311 - a history, not a secret
    rows = []
    for after_s in arrivals(rng, minutes):
        tenant, gpus = rng.choice("abcd"), rng.choice((1, 1, 1, 2, 2, 4, 8))
        duration_s = max(5, int(rng.lognormvariate(4.6, 1.2)))
        fields: dict[str, Any] = {"max_price": "0.4"} if limited and rng.random() < 0.1 else {}
        job = lab.submit(tenant, gpus, duration_s, after_s=after_s, **fields)
        failed = rng.random() < 0.1
        VirtualWork.objects.filter(job=job).update(exit_code=int(failed))
        rows.append(
            SimJob(
                id=job.pk,
                tenant=lab.tenants[tenant].pk,
                gpus=gpus,
                submitted_us=to_us(BEGIN) + after_s * SECOND_US,
                duration_us=duration_s * SECOND_US,
                max_price_micro=400_000 if fields else None,
                failed=failed,
            )
        )
    return rows


def submit_profiled(lab: Cluster, seed: int, minutes: int) -> list[SimJob]:
    """Submit jobs with and without profiles; half of those with a profile do not run on the K80."""
    rng = Random(seed)  # noqa: S311 - a history, not a secret
    profiles = {
        slug: (
            lab.profile(slug, "anywhere", k80=1000, p100=1730, v100=1873),
            lab.profile(slug, "not-k80", p100=1000, v100=1537),
        )
        for slug in "abcd"
    }
    rows = []
    for after_s in arrivals(rng, minutes):
        tenant, gpus = rng.choice("abcd"), rng.choice((1, 1, 1, 2, 2, 4, 8))
        # Odd numbers of seconds make rounding errors visible.
        duration_s = max(5, int(rng.lognormvariate(4.9, 1.2)))
        profile = rng.choice((None, *profiles[tenant]))
        types = sorted(profile.speedups) if profile else []
        job = lab.submit(
            tenant, gpus, duration_s, after_s=after_s, profile=profile, gpu_types=types
        )
        rows.append(
            SimJob(
                id=job.pk,
                tenant=lab.tenants[tenant].pk,
                gpus=gpus,
                submitted_us=to_us(BEGIN) + after_s * SECOND_US,
                duration_us=duration_s * SECOND_US,
                gpu_types=tuple(types),
                profile=profile.pk if profile else 0,
            )
        )
    return rows


def submit_bound(lab: Cluster, seed: int, minutes: int) -> list[SimJob]:
    """Submit jobs that CPUs or memory limit before GPUs do; some declare neither."""
    rng = Random(seed)  # noqa: S311 - a history, not a secret
    rows = []
    for after_s in arrivals(rng, minutes):
        tenant, gpus = rng.choice("abcd"), rng.choice((1, 1, 1, 2, 2, 4, 6))
        duration_s = max(5, int(rng.lognormvariate(4.4, 1.0)))
        cpus, memory_mb = rng.choice((0, 1, 4, 9)) * gpus, rng.choice((0, 10, 300)) * gpus
        job = lab.submit(tenant, gpus, duration_s, after_s=after_s, cpus=cpus, memory_mb=memory_mb)
        rows.append(
            SimJob(
                id=job.pk,
                tenant=lab.tenants[tenant].pk,
                gpus=gpus,
                submitted_us=to_us(BEGIN) + after_s * SECOND_US,
                duration_us=duration_s * SECOND_US,
                cpus=cpus,
                memory_mb=memory_mb,
            )
        )
    return rows


def live_hour(lab: Cluster, cancels: dict[int, list[int]], minutes: int = 60) -> int:
    """Run the engine over an hour, or less; return the number of committed rounds."""
    rounds = 0
    for tick in range(60 * minutes // ROUND_S + 1):
        lab.at = BEGIN + timedelta(seconds=tick * ROUND_S)
        rounds += lab.round().outcome is RoundOutcome.COMMITTED
        for job in cancels.get(tick, []):
            cancel_job(job=Job.objects.get(pk=job), now=PoolNow(lab.at, lab.at, 1, paused=False))
    while meter_pool(lab.pool.pk).events:
        pass
    return rounds


def simulated_cluster(lab: Cluster, jobs: Sequence[SimJob] = ()) -> SimCluster:
    """Return the pool's nodes, quotas and profiles from the database."""
    nodes = NodeRow.objects.filter(pool=lab.pool).select_related("gpu_type").order_by("id")
    quotas = Quota.objects.filter(pool=lab.pool).select_related("gpu_type")
    return SimCluster(
        nodes=tuple(Node(row.pk, row.gpu_type.name, row.gpus) for row in nodes),
        quotas=tuple(
            Entitlement(row.tenant_id, row.gpu_type.name, row.gpus)
            for row in quotas.order_by("tenant_id", "gpu_type__name")
        ),
        profiles={
            row.pk: Profile(row.pk, row.tenant_id, tuple(sorted(row.speedups.items())))
            for row in ProfileRow.objects.filter(pool=lab.pool)
        },
        node_resources=tuple(
            Resources(row.pk, row.cpus, row.memory_mb) for row in nodes if row.cpus
        ),
        job_resources=job_resources(jobs),
    )


def simulated_hour(
    lab: Cluster, jobs: list[SimJob], policy: str, minutes: int = 60
) -> SimulationResult:
    pool = lab.pool
    rules = Rules(policy, round_us=ROUND_S * SECOND_US, lease_us=pool.lease_s * SECOND_US)
    return simulate(
        simulated_cluster(lab, jobs),
        tuple(jobs),
        replace(rules, options=pool.options),
        start_us=to_us(BEGIN),
        until_us=to_us(BEGIN) + 60 * minutes * SECOND_US,
    )


def live_leases() -> list[tuple[Any, ...]]:
    return sorted(
        (
            *(row.job_id, row.number, tuple((node, gpus) for node, gpus in row.placement)),
            to_us(row.started_at) if row.started_at else None,
            to_us(row.ended_at) if row.ended_at else None,
            row.end_reason,
        )
        for row in Lease.objects.all()
    )


def simulated_leases(outcome: SimulationResult) -> list[tuple[Any, ...]]:
    ended = [row[1:3] + row[4:8] for row in outcome.books.leases]
    numbers: dict[int, int] = {}
    for row in outcome.books.leases:
        numbers[row.job] = max(numbers.get(row.job, 0), row.number)
    still = [
        (lease.job, numbers.get(lease.job, 0) + 1, lease.placement, lease.started_us, None, "")
        for lease in outcome.open
    ]
    return sorted(ended + still)


def live_terms() -> list[tuple[Any, ...]]:
    """Return closed terms with their times and charges, from usage lines."""
    lines: dict[tuple[int, int], list[Any]] = {}
    for line in UsageLine.objects.select_related("lease"):
        row = lines.setdefault(
            (line.lease_id, line.term), [line.job_id, line.lease.number, line.term, 0, 0, 0, 0]
        )
        row[3 if line.meter == "own" else 4] = line.gpus
        row[5] = (to_us(line.starts_at), to_us(line.ends_at))
        row[6] += to_micro(line.amount)
    for (lease, number), row in lines.items():
        term = LeaseTerm.objects.get(lease_id=lease, number=number)
        assert [term.own, term.borrowed] == row[3:5]
    return sorted(tuple(row) for row in lines.values())


def simulated_terms(outcome: SimulationResult) -> list[tuple[Any, ...]]:
    numbers = {row.lease: (row.job, row.number) for row in outcome.books.leases}
    last = {lease.id: lease.job for lease in outcome.open}
    for lease, job in last.items():
        past = [row.number for row in outcome.books.leases if row.job == job]
        numbers[lease] = (job, max(past, default=0) + 1)
    return sorted(
        (
            *numbers[row.lease], row.term, row.own, row.borrowed,
            (row.starts_us, row.ends_us), row.charge_micro,
        )
        for row in outcome.books.terms
    )  # fmt: skip


class TestSeededHour:
    @pytest.mark.parametrize(
        ("minutes", "policy", "seed"), [(20, "ltgf", 1), (20, "fifo", 2), (60, "ltgf", 1)]
    )
    def test_leases_terms_and_charges_match_live_pool(
        self, minutes: int, policy: str, seed: int
    ) -> None:
        lab = cluster(
            QUOTAS, nodes=NODES, gpus=GPUS, round_s=ROUND_S, lease_s=LEASE_S, policy=policy
        )
        # Runs with and without limits compare the state kept between rounds with the engine's.
        jobs = submit_all(lab, seed, limited=policy == "ltgf", minutes=minutes)
        cancels: dict[int, list[int]] = {}
        # cancelled half a minute to five minutes after the submission
        for index in range(5, len(jobs), 9):
            tick = (
                (jobs[index].submitted_us - to_us(BEGIN)) // SECOND_US // ROUND_S + index % 15 + 1
            )
            cancels.setdefault(tick, []).append(jobs[index].id)
            jobs[index] = replace(
                jobs[index], cancel_us=to_us(BEGIN) + tick * ROUND_S * SECOND_US + 1
            )
        rounds = live_hour(lab, cancels, minutes)
        outcome = simulated_hour(lab, jobs, policy, minutes)
        expected, found = live_leases(), simulated_leases(outcome)
        assert len(expected) > LEAST_LEASES[minutes]
        assert found == expected
        assert simulated_terms(outcome) == live_terms()
        assert sum(row.charge_micro for row in outcome.books.terms) > 0
        assert outcome.rounds == rounds


class TestSeededHourWithCpusAndMemory:
    @pytest.mark.parametrize(
        ("minutes", "seed", "spread"),
        [(20, 11, False), (20, 12, True), pytest.param(60, 12, True, marks=pytest.mark.soak)],
    )
    def test_leases_terms_and_charges_match_live_pool(
        self, tmp_path: Path, minutes: int, seed: int, *, spread: bool
    ) -> None:
        """Two nodes declare CPUs and memory, one only CPUs, and one neither.

        Files are compared too.
        """
        lab = cluster(
            QUOTAS, nodes=4, gpus=GPUS, round_s=ROUND_S, lease_s=LEASE_S, policy="drf",
            options={"spread": spread},
        )  # fmt: skip
        nodes = NodeRow.objects.filter(pool=lab.pool)
        nodes.filter(name__in=("n0000", "n0001")).update(cpus=10, memory_mb=800)
        nodes.filter(name="n0002").update(cpus=12)
        jobs = submit_bound(lab, seed, minutes)
        rounds = live_hour(lab, {}, minutes)
        outcome = simulated_hour(lab, jobs, "drf", minutes)
        expected, found = live_leases(), simulated_leases(outcome)
        assert len(expected) > LEAST_LEASES[minutes]
        assert found == expected
        assert simulated_terms(outcome) == live_terms()
        assert outcome.rounds == rounds
        assert self._reasons() >= {"cpus_or_memory"}
        words, remarks = exported.exported(lab, tmp_path)
        assert remarks == ""
        simulated = exported.simulated_leases(words, tmp_path, minutes=minutes)
        assert simulated == exported.live_leases()

    @staticmethod
    def _reasons() -> set[str]:
        """Return the reasons why jobs waited in any round."""
        return {
            skip.reason.value for row in Round.objects.all() for skip in round_decision(row).skips
        }


class TestSeededHourWithPreemption:
    @pytest.mark.parametrize(
        ("minutes", "min_runtime_s"),
        [(20, 60), (20, 900), pytest.param(60, 60, marks=pytest.mark.soak)],
    )
    def test_leases_terms_and_charges_match_live_pool(
        self, minutes: int, min_runtime_s: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Leases end before their expiry and move; some are protected beyond their expiry."""
        monkeypatch.setitem(registry.POLICIES, POLICY.name, POLICY)
        lab = cluster(
            QUOTAS, nodes=NODES, gpus=GPUS, round_s=ROUND_S, lease_s=600, policy=POLICY.name,
            options={"min_runtime_s": min_runtime_s},
        )  # fmt: skip
        jobs = submit_all(lab, 7, limited=False, minutes=minutes)
        rounds = live_hour(lab, {}, minutes)
        outcome = simulated_hour(lab, jobs, POLICY.name, minutes)
        expected, found = live_leases(), simulated_leases(outcome)
        early = [row for row in expected if row[-1] in ("preempted", "moved")]
        assert {row[-1] for row in early} >= ({"preempted"} if min_runtime_s < 600 else set())
        assert found == expected
        assert simulated_terms(outcome) == live_terms()
        assert outcome.rounds == rounds


class TestSeededHourWithPromises:
    @pytest.mark.parametrize("minutes", [20, pytest.param(60, marks=pytest.mark.soak)])
    def test_leases_terms_and_charges_match_live_pool(self, minutes: int) -> None:
        """Gangs get promises, leases end for them, and every round replays to the same bytes."""
        lab = cluster(
            QUOTAS, nodes=NODES, gpus=GPUS, round_s=ROUND_S, lease_s=240, policy="evenshare",
            options={"promises": True, "min_runtime_s": 60},
        )  # fmt: skip
        jobs = submit_all(lab, 7, limited=False, minutes=minutes)
        rounds = live_hour(lab, {}, minutes)
        outcome = simulated_hour(lab, jobs, "evenshare", minutes)
        expected, found = live_leases(), simulated_leases(outcome)
        stored = [round_values(row) for row in Round.objects.all()]
        decisions = [decision for _, decision in stored]
        assert [decide_round(snapshot) for snapshot, _ in stored] == decisions
        assert Reason.PROMISED in {skip.reason for row in decisions for skip in row.skips}
        rules = {end.rule for row in decisions for end in row.preemptions}
        assert PreemptionRule.PROMISE in rules
        assert found == expected
        assert simulated_terms(outcome) == live_terms()
        assert outcome.rounds == rounds


class TestSeededHourOnThreeTypes:
    @pytest.mark.parametrize(
        ("minutes", "policy", "seed"),
        [
            *((20, "ltgf", 3), (20, "fifo", 4), (20, "oef", 5)),
            pytest.param(60, "oef", 5, marks=pytest.mark.soak),
        ],
    )
    def test_leases_terms_and_charges_match_live_pool(
        self, tmp_path: Path, minutes: int, policy: str, seed: int
    ) -> None:
        lab = cluster(
            {"a": 3, "b": 1, "c": 0, "d": 0}, nodes=1, gpus=4,
            round_s=ROUND_S, lease_s=LEASE_S, policy=policy,
        )  # fmt: skip
        lab.add_type("p100", nodes=1, gpus=4, quotas={"b": 2, "c": 2})
        lab.add_type("k80", nodes=2, gpus=2, quotas={"a": 1, "d": 3})
        jobs = submit_profiled(lab, seed, minutes)
        rounds = live_hour(lab, {}, minutes)
        outcome = simulated_hour(lab, jobs, policy, minutes)
        expected, found = live_leases(), simulated_leases(outcome)
        assert {lease.gpu_type.name for lease in Lease.objects.all()} == {"v100", "p100", "k80"}
        assert found == expected
        assert simulated_terms(outcome) == live_terms()
        assert outcome.rounds == rounds
        self._is_the_same_from_files(lab, tmp_path, minutes)
        self._sums_are_those_of_leases(lab)

    @staticmethod
    def _is_the_same_from_files(lab: Cluster, folder: Path, minutes: int) -> None:
        words, remarks = exported.exported(lab, folder)
        assert remarks == ""
        found = exported.simulated_leases(words, folder, minutes=minutes)
        assert found == exported.live_leases()

    @staticmethod
    def _sums_are_those_of_leases(lab: Cluster) -> None:
        """Check that GPU-time received counts for the held type, not for the claimed type."""
        claims = {(row.tenant, row.gpu_type): row for row in sums_of(lab.pool).claims}
        held = dict.fromkeys(claims, 0)
        for lease in Lease.objects.all():
            if lease.started_at is None:
                continue
            key = lease.tenant_id, lease.gpu_type.name
            until_us = claims[key].since_us
            end_us = until_us if lease.ended_at is None else min(until_us, to_us(lease.ended_at))
            held[key] += lease.gpus * max(0, end_us - to_us(lease.started_at))
        assert {key: row.alloc_gpu_us for key, row in claims.items()} == held
        assert len({gpu_type for (_, gpu_type), gpu_us in held.items() if gpu_us}) == 3

    def test_counts_work_at_speed_of_type(self) -> None:
        lab = cluster({"a": 1}, nodes=1, gpus=1, round_s=ROUND_S, lease_s=LEASE_S)
        fast = lab.profile("a", "fast", v100=1873, k80=1000)
        job = lab.submit("a", 1, 100, profile=fast, gpu_types=["v100"])
        lab.round()
        lab.round(after_s=60)
        lease = Lease.objects.get(job=job)
        assert lease.started_at is not None
        assert lease.ended_at is not None
        held_us = to_us(lease.ended_at) - to_us(lease.started_at)
        # A job has 100 s of work on the slowest type, and ends at the next microsecond.
        assert held_us == -(-100 * SECOND_US * 1000 // 1873)
        assert VirtualWork.objects.get(job=job).done_us == 100 * SECOND_US

    def test_does_not_start_job_on_unsupported_type(self) -> None:
        lab = cluster({"a": 1}, nodes=1, gpus=1, round_s=ROUND_S, lease_s=LEASE_S)
        job = lab.submit("a", 1, 100)
        lab.round()
        lease = Lease.objects.get(job=job)
        VirtualWork.objects.filter(job=job).update(token="", launched_us=None)
        Job.objects.filter(pk=job.pk).update(profile=lab.profile("a", "k80-only", k80=1000))
        token = lease_token(job.pk, lease.number, "here")
        report = VirtualExecutor().launch([Launch(token, job.pk, to_us(lab.at))])[0]
        assert (report.state, report.ended_us) == (ReportState.STOPPED, report.started_us)
        assert VirtualWork.objects.get(job=job).token == ""
