"""A workload on a cluster, in one pool or in one partition per tenant, and its runs by policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from evenshare_core.domain.cluster import Node
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.simulation.books import Books, JobRecord, LeaseRecord
from evenshare_core.simulation.figures import figures_of
from evenshare_core.simulation.report import Result
from evenshare_core.simulation.simulator import SimulationResult, simulate
from evenshare_core.simulation.state import Rules
from evenshare_core.simulation.throughputs import Speeds, make_profiles
from evenshare_core.simulation.workloads import (
    ONE_TYPE,
    Cluster,
    SimJob,
    Workload,
    make_nodes,
    quotas_by_demand,
)
from evenshare_core.units import ONE_MILLI


class ScenarioError(ValueError):
    """The workload and the cluster do not match; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A workload on a cluster.

    `partitions`: tenant -> its nodes; if empty, all tenants share one pool. The run starts at
    `start_us`, on the clock of the jobs. `node_names` are by node number and may be empty.
    """

    workload: Workload
    cluster: Cluster
    partitions: Mapping[int, tuple[Node, ...]] = field(default_factory=dict)
    start_us: int = 0
    node_names: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def make(
        cls,
        workload: Workload,
        nodes: tuple[Node, ...],
        speeds: Mapping[str, int],
        partitions: Mapping[str, int],
        gpus_per_node: int,
        *,
        measured: Speeds | None = None,
    ) -> Scenario:
        """Place a workload on nodes with quotas by demand, or on partitions by tenant's name.

        `measured` has the speeds of jobs with a model.

        Raises:
            ScenarioError: there are no nodes, or a tenant has none.
            SpeedsError: a model was not measured on these types.
        """
        if not partitions:
            if not nodes:
                raise ScenarioError("needs --nodes, --gpu-types or --partitions")
            quotas = quotas_by_demand(workload.jobs, nodes)
            cluster = Cluster(nodes, quotas, speeds=speeds)
            if measured is None:
                return cls(workload, cluster)
            types = {node.gpu_type for node in nodes}
            jobs, profiles = make_profiles(workload.jobs, measured, types)
            return cls(replace(workload, jobs=jobs), replace(cluster, profiles=profiles))
        missing = sorted(set(workload.tenants.values()) - set(partitions))
        if missing:
            raise ScenarioError(f"no nodes for tenants {', '.join(missing)}")
        empty = sorted(name for name in workload.tenants.values() if not partitions[name])
        if empty:
            raise ScenarioError(f"0 nodes for tenants {', '.join(empty)}, which have jobs")
        counts = {tenant: partitions[name] for tenant, name in sorted(workload.tenants.items())}
        rest = make_nodes({ONE_TYPE: sum(counts.values())}, gpus_per_node)
        alone: dict[int, tuple[Node, ...]] = {}
        first = 0
        for tenant, count in counts.items():
            alone[tenant] = rest[first : first + count]
            first += count
        quotas = tuple(
            Entitlement(tenant, ONE_TYPE, count * gpus_per_node) for tenant, count in counts.items()
        )
        return cls(workload, Cluster(rest, quotas), alone)


def run_policy(
    scenario: Scenario,
    rules: Rules,
    *,
    timer: Callable[[], float] | None = None,
    progress: Callable[[int], None] | None = None,
) -> SimulationResult:
    """Run a scenario under a policy; partitions run as separate pools with one joint result."""
    jobs = scenario.workload.jobs
    if not scenario.partitions:
        return simulate(
            scenario.cluster, jobs, rules, start_us=scenario.start_us, timer=timer,
            progress=progress,
        )  # fmt: skip # rows of what belongs together
    whole = SimulationResult(Books(), 0, 0)
    for tenant, nodes in scenario.partitions.items():
        mine = {node.id for node in nodes}
        cluster = replace(
            scenario.cluster,
            nodes=nodes,
            quotas=tuple(row for row in scenario.cluster.quotas if row.tenant == tenant),
            changes=tuple(row for row in scenario.cluster.changes if row.node in mine),
        )
        own = tuple(job for job in jobs if job.tenant == tenant)
        _join(whole, simulate(cluster, own, rules, start_us=scenario.start_us, timer=timer))
        if progress is not None:
            progress(len(whole.books.jobs))
    return whole


def _join(whole: SimulationResult, part: SimulationResult) -> None:
    whole.books.jobs += part.books.jobs
    whole.books.leases += part.books.leases
    whole.books.terms += part.books.terms
    _add(whole.books.charged, part.books.charged)
    for gpu_type, incomes in part.books.incomes.items():
        _add(whole.books.incomes.setdefault(gpu_type, {}), incomes)
    whole.rounds += part.rounds
    whole.end_us = max(whole.end_us, part.end_us)
    whole.stranded += part.stranded
    whole.decide_s += part.decide_s


def _add(total: dict[int, int], more: Mapping[int, int]) -> None:
    for tenant, amount in more.items():
        total[tenant] = total.get(tenant, 0) + amount


def infinite(scenario: Scenario, rules: Rules) -> Result:
    """Run without a limit of GPUs: each job starts at the first round after its submission.

    This is a lower bound of completion times. A job keeps its GPUs until its end, on the fastest
    type that it can use. A cancelled job ends at the first round after its cancellation, as in a
    run.
    """
    books = Books()
    for job in scenario.workload.jobs:
        _alone(books, job, rules.round_us, *_fastest(scenario.cluster, job))
    figures = figures_of(
        scenario.cluster, scenario.workload.jobs, books, partitions=scenario.partitions
    )
    figures.utilisation = figures.waste = None  # undefined with unlimited GPUs
    return Result("infinite", figures, 0, 0.0, books.sha256(), len(books.jobs))


def _fastest(cluster: Cluster, job: SimJob) -> tuple[str, int]:
    """Return the fastest usable type, and its speed in thousandths.

    Ties go to the first by name. Without a usable type, return the first accepted one.
    """
    types = {node.gpu_type for node in cluster.nodes}
    usable = types.intersection(job.gpu_types) if job.gpu_types else types
    speeds = [(-cluster.speed_milli(job.profile, name), name) for name in usable]
    if not speeds:
        return min(job.gpu_types, default=ONE_TYPE), ONE_MILLI
    speed, name = min(speeds)
    return name, -speed


def _alone(books: Books, job: SimJob, round_us: int, gpu_type: str, speed_milli: int) -> None:
    """Record a job that keeps its GPUs from its start to its end."""
    start_us = _round_at(job.submitted_us, round_us)
    end_us = start_us - (-job.duration_us * ONE_MILLI // speed_milli)
    state, reason, useful_us = "succeeded", "finished", job.duration_us
    if job.cancel_us is not None:
        asked_us = max(job.cancel_us, job.submitted_us)
        if asked_us <= start_us:  # the job was still waiting
            books.jobs.append(JobRecord(job.id, "cancelled", None, asked_us, 0, 0))
            return
        seen_us = _round_at(asked_us, round_us)
        if seen_us < end_us:
            end_us, state, reason = seen_us, "cancelled", "cancelled"
            useful_us = (end_us - start_us) * speed_milli // ONE_MILLI
    books.jobs.append(JobRecord(job.id, state, start_us, end_us, 1, useful_us))
    books.leases.append(LeaseRecord(job.id, job.id, 1, gpu_type, (), start_us, end_us, reason, 0))


def _round_at(at_us: int, round_us: int) -> int:
    """Return the first round's time at or after a given time, or this time if `round_us` is 0."""
    return -(-at_us // round_us) * round_us if round_us else at_us
