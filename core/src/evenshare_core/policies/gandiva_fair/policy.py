"""Gandiva_fair: gang-aware split stride, tickets by placement, moves, and trades of GPU types.

Source: S. Chaudhary et al., Balancing Efficiency and Fairness in Heterogeneous GPU Clusters for
Deep Learning, EuroSys 2020.

Rules, by number; each has a file:

1. *Tickets* (`tickets`, `rates`): a tenant's tickets are its quota of each type. The rates of jobs
   at their homes give tenants equal GPU-time per ticket, as far as possible. As an option, a job's
   rate is its tenant's quota divided by the GPUs of the tenant's jobs.
2. *Homes* (`homes`): each job has a home on nodes of one type, by Algorithm 2; few jobs move.
3. *Turns* (`stride`): the jobs of a node take turns by exact pass. Jobs over several nodes also
   compete by pass, with an aggregate pass per node.
4. *Idle GPUs* (`stride`) go to waiting jobs, even away from their homes.
5. *Trades* (`trading`) are made once a quantum, at the second price. Trades that are no longer
   justified end.

| paper | here | unit |
|---|---|---|
| t_u, tickets | `Entitlement.gpus`, after trades | GPUs of a type |
| r, size | `Job.gpus` | GPUs |
| ticketsPerGPU (1), jobTickets (3) | rate / size, `Pass.rate` | `rates.UNIT` per GPU |
| ticketLoadPerGPU (2) | `TypeHomes.load` | tickets |
| pass, stride | `Pass.value`; size x term / rate | us |
| perf[g] | 1 / `Profile.speed_milli` | |
| quantum | a term: a lease of one quantum, renewed if the job keeps its GPUs | us |

Departures, each with its test in tests/papers/test_gandiva_fair.py or test_gandiva_fair_rounds.py:

- Rates by placement, exact passes, ties by (pass, size, submission). With (1) and (3) as printed,
  the results differ from the paper's examples (`TestTwoNodes`, `TestOneNode`).
- Leases need not expire together; GPUs of unexpired leases take no part in turns
  (`TestContinuingLeases`).
- Idle GPUs are given at once; the paper leaves them to packing and moves (`TestIdleGpus`).
- Profiles are those of the snapshot, measured or declared elsewhere. A type fits a job's memory if
  its profile has a speed there (`TestGpuTypes`).
- Only quota is traded, not GPUs that other tenants leave idle (`TestTrades`).

If no job waits and no lease has ended, a round changes no pass, home or trade. The round may
therefore be skipped. All ties are broken by (submitted, id).
"""

from collections.abc import Iterable, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from evenshare_core.domain.decision import Decision, Skip, TermLength, Trade, with_swaps
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.reasons import Reason
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.certificate import Property
from evenshare_core.placement.consolidated import free_capacity_by_type
from evenshare_core.policies.gandiva_fair.homes import (
    Placer,
    TypeHomes,
    least_pass_us,
    read_homes,
)
from evenshare_core.policies.gandiva_fair.memory import (
    MEMORY_IDS,
    Memory,
    StrideJob,
    read_jobs,
    read_memory,
    write_memory,
)
from evenshare_core.policies.gandiva_fair.options import GandivaFairOptions
from evenshare_core.policies.gandiva_fair.ratings import set_rates
from evenshare_core.policies.gandiva_fair.stride import GUEST, IDLE, Turns
from evenshare_core.policies.gandiva_fair.tickets import (
    Claim,
    GpuTypes,
    TenantTypes,
    demand_of,
    fair_shares,
    quotas_micro,
    traders_of,
)
from evenshare_core.policies.gandiva_fair.trading import (
    changes_of,
    new_trades,
    undo_wrong,
    whole_swaps,
)
from evenshare_core.policies.options import parse_options
from evenshare_core.policies.policy import Policy, Traits
from evenshare_core.policies.quota_promise import QuotaPromiseKind
from evenshare_core.policies.shared import explain
from evenshare_core.policies.shared.terms import expired_ends


class GandivaFair(Policy):
    name = "gandiva_fair"
    version = "3"  # version 3: the memory contains no hash of ids (ADR 0195)
    title = "Gang-aware stride with trading"
    promise = (
        "Jobs take turns on GPUs, so each tenant gets its quota of every GPU type over minutes."
        " Tenants trade GPU types if both gain."
    )
    suits = "Mixed GPU types, and jobs that save their state quickly and may trade types."
    order_text = (
        "On each node, the job that received least of its share of turns; a job that does not"
        " fit is skipped and keeps its place."
    )
    quota_text = (
        "A quota is a number of tickets. Over a few quanta a tenant's jobs together receive the"
        " GPU-time of its quota of each GPU type, as far as they fit the nodes. At one moment it"
        " may hold more or fewer. If it trades, it receives other types instead, with no less"
        " throughput at the known speeds."
    )
    quota_kind = QuotaPromiseKind.LONG_TERM
    promised = frozenset({Property.TRADES})
    note_texts = MappingProxyType(
        {
            IDLE: "No job on these nodes could use the GPUs, so it moved there.",
            GUEST: "GPUs of another type were idle; it runs there until its next turn.",
        }
    )
    traits = Traits(trades_types=True, needs_profiles=True, preempts=True)
    memory_ids = MEMORY_IDS
    options_type = GandivaFairOptions

    def decide(self, snapshot: Snapshot) -> Decision:
        options = parse_options(GandivaFairOptions, snapshot.options)
        memory = read_memory(snapshot.memory)
        types = GpuTypes(snapshot.nodes, snapshot.profiles)
        jobs = read_jobs(snapshot, memory, types)
        quantum_us = quantum_of(snapshot, options)
        begun_us = snapshot.at_us - snapshot.at_us % quantum_us
        is_due = begun_us > memory.quantum_us and any(not one.runs for one in jobs)
        trades = _trade(snapshot, options, memory, types, is_due=is_due)
        if is_due:
            memory = memory._replace(quantum_us=begun_us)
        swaps = whole_swaps(memory.trades)
        traded = with_swaps(snapshot, swaps)
        quotas = _traded_quotas(snapshot, memory.trades)
        homes = _settle(snapshot, options, types, jobs, quotas, memory=memory, moves=is_due)
        set_rates(options.tickets, homes, jobs, quotas, memory)
        turns = Turns(traded, memory, types, term_of(snapshot, quantum_us), quantum_us)
        turns.run(homes, jobs)
        for one in jobs if turns.refused else ():
            if one.job.id in turns.refused and one.home:
                one.passes.raise_to(least_pass_us(homes[one.gpu_type], one))
        renewed = {row.lease for row in turns.renewals}
        return Decision(
            at_us=snapshot.at_us,
            grants=tuple(turns.grants),
            renewals=tuple(turns.renewals),
            ends=expired_ends(snapshot, renewed, turns.refused),
            skips=_skips(traded, jobs, turns),
            memory=write_memory(jobs, memory, _touched(homes)),
            lengths=_lengths(snapshot, turns),
            trades=trades,
            swaps=swaps,
        )


POLICY = GandivaFair()


def quantum_of(snapshot: Snapshot, options: GandivaFairOptions) -> int:
    """Return the quantum in us: the option, kept within the pool's bounds of lease lengths.

    If the pool has no such bounds, return its lease length.
    """
    if not snapshot.lease_bounds_us:
        return snapshot.lease_us
    least_us, most_us = snapshot.lease_bounds_us
    return max(least_us, min(most_us, options.quantum_us))


def term_of(snapshot: Snapshot, quantum_us: int) -> int:
    """Return the length of a term that starts now, in us.

    It ends with the quantum if the pool's bounds allow that.

    All leases of a pool therefore end together, so that a gang finds whole nodes free.
    """
    if not snapshot.lease_bounds_us:
        return snapshot.lease_us
    least_us, most_us = snapshot.lease_bounds_us
    left_us = quantum_us - snapshot.at_us % quantum_us
    if left_us < least_us:
        left_us += quantum_us
    return left_us if left_us <= most_us else quantum_us


def _lengths(snapshot: Snapshot, turns: Turns) -> tuple[TermLength, ...]:
    if turns.term_us == snapshot.lease_us:
        return ()
    return tuple(TermLength(job, turns.term_us) for job in sorted(turns.given))


# ---- trades and tickets ----


def _trade(
    snapshot: Snapshot,
    options: GandivaFairOptions,
    memory: Memory,
    types: GpuTypes,
    *,
    is_due: bool,
) -> tuple[Trade, ...]:
    """Apply rule 5: undo trades that are no longer justified, or make this quantum's trades."""
    if not memory.trades and not (is_due and options.trading and len(types.names) > 1):
        return ()
    traders = traders_of(snapshot, types) if options.trading else {}
    standing, undone = undo_wrong(memory.trades, traders, snapshot.at_us)
    made = []
    if is_due and not undone:
        made = new_trades(list(traders.values()), standing, types.names, snapshot.at_us)
    memory.trades[:] = [*standing, *made]
    return (*undone, *made)


def _traded_quotas(snapshot: Snapshot, trades: Iterable[Trade]) -> dict[Claim, int]:
    quotas = quotas_micro(snapshot.entitlements)
    for key, micro in changes_of(trades).items():
        quotas[key] = quotas.get(key, 0) + micro
    return quotas


def _settle(
    snapshot: Snapshot,
    options: GandivaFairOptions,
    types: GpuTypes,
    jobs: list[StrideJob],
    quotas: Mapping[Claim, int],
    *,
    memory: Memory,
    moves: bool,
) -> dict[str, TypeHomes]:
    """Find homes for new jobs (rule 2). `moves`: whether some other jobs may get new homes."""
    homes = read_homes(jobs, snapshot.nodes, types, memory)
    is_new = any(not one.home for one in jobs)
    if not moves and not is_new:
        return homes
    shares = fair_shares(quotas, demand_of((one.job, one.usable) for one in jobs), types)
    placer = Placer(homes, types, TenantTypes(shares, {}), jobs)
    placer.settle_new(jobs)
    if moves and options.moves_per_quantum:
        placer.set_loads()
        budget = placer.change_types(jobs, options.moves_per_quantum, options.gain_percent)
        if budget < options.moves_per_quantum:
            placer.set_loads()
        placer.balance(budget, options.balance_percent)
    return homes


def _touched(homes: Mapping[str, TypeHomes]) -> list[int]:
    return sorted(node for row in homes.values() for node in row.touched)


# ---- why jobs wait ----


def _skips(snapshot: Snapshot, jobs: Iterable[StrideJob], turns: Turns) -> tuple[Skip, ...]:
    waiting: dict[tuple[int, str, tuple[str, ...]], list[Job]] = {}
    kept: dict[tuple[int, str], list[Job]] = {}
    nowhere: dict[int, list[Job]] = {}
    given = turns.given
    for one in jobs:
        job = one.job
        if one.runs or job.id in given:
            continue
        if not one.home:
            nowhere.setdefault(job.tenant, []).append(job)
            continue
        if turns.held and job.id not in turns.refused and turns.is_kept_from(one):
            kept.setdefault((job.tenant, one.gpu_type), []).append(job)
            continue
        key = (job.tenant, one.gpu_type, one.usable)
        alike = waiting.get(key)
        if alike is None:
            waiting[key] = [job]
        else:
            alike.append(job)
    queues = {
        (tenant, (name, *(other for other in usable if other != name))): waits
        for (tenant, name, usable), waits in waiting.items()
    }
    if not queues and not kept and not nowhere:
        return ()
    free = free_capacity_by_type(snapshot.nodes, snapshot.leases, snapshot.at_us)
    rows = explain.skips(
        [
            explain.Queue(
                tenant, names[0], sorted(waits, key=_by_arrival), None, None, None, names[1:]
            )
            for (tenant, names), waits in sorted(queues.items())
        ],
        free,
        turns.admission,
    )
    rows += [
        _skip(Reason.RESERVED_FOR_GANG, key[0], waits,
              {"gpu_type": key[1], "held_back": sum(turns.held.values())})
        for key, waits in sorted(kept.items())
    ]  # fmt: skip # a table
    rows += [
        _skip(Reason.TOO_LARGE, tenant, waits, {"capacity": 0})
        for tenant, waits in sorted(nowhere.items())
    ]
    return tuple(rows)


_by_arrival = attrgetter("submitted_us", "id")


def _skip(reason: Reason, tenant: int, jobs: list[Job], numbers: dict[str, Any]) -> Skip:
    jobs.sort(key=_by_arrival)
    needed = min(job.gpus for job in jobs)
    return Skip(
        reason,
        tenant,
        tuple(job.id for job in jobs),
        sum(job.gpus for job in jobs),
        {"needed": needed, **numbers},
    )
