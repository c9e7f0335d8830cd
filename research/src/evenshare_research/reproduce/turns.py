"""Runs of Gandiva_fair over quanta of one minute: GPUs by tenant and type in each quantum."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from evenshare_core.domain.cluster import Node
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.profiles import Profile
from evenshare_core.policies.base import decide_round
from evenshare_core.simulation.state import Rules, SimulationState
from evenshare_core.simulation.workloads import Cluster, SimJob
from evenshare_core.units import MINUTE_US
from evenshare_research.reproduce.runs import KeptRun

QUANTUM_US = MINUTE_US
ENDLESS_US = 10**6 * QUANTUM_US
# GPU type -> sizes of its nodes
Sizes = Mapping[str, Sequence[int]]
# (tenant, number of jobs, GPUs of each job)
Kind = tuple[int, int, int]


def turns(
    label: str,
    about_s: int,
    *,
    sizes: Sizes,
    kinds: Sequence[Kind],
    quanta: int,
    tickets: Mapping[int, Mapping[str, int]],
    ends: Mapping[int, int] | None = None,
    speeds: Mapping[int, Mapping[str, int]] | None = None,
    trading: bool = False,
) -> KeptRun:
    """Return a run of `quanta` quanta.

    `tickets` are by tenant and GPU type. `ends`: the quantum after which a tenant's jobs leave.
    `speeds`: by tenant, in thousandths of the slowest type's speed. Without them, all types are
    equally fast.
    """
    return KeptRun.of(
        f"{__name__}:run",
        label,
        about_s,
        sizes={name: list(row) for name, row in sizes.items()},
        kinds=[list(kind) for kind in kinds],
        quanta=quanta,
        tickets={str(tenant): dict(row) for tenant, row in tickets.items()},
        ends={str(tenant): quantum for tenant, quantum in (ends or {}).items()},
        speeds={str(tenant): dict(row) for tenant, row in (speeds or {}).items()},
        trading=trading,
    )


def run(
    *,
    sizes: Sizes,
    kinds: Sequence[Sequence[int]],
    quanta: int,
    tickets: Mapping[str, Mapping[str, int]],
    ends: Mapping[str, int],
    speeds: Mapping[str, Mapping[str, int]],
    trading: bool,
) -> dict[str, Any]:
    """Decide the quanta.

    Return the GPUs held in each quantum by tenant and type, and all trades. `gpus`: "tenant type"
    -> GPUs by quantum. `made`, `undone`: trades by quantum.
    """
    jobs = _jobs(kinds, ends, speeds)
    cluster = _cluster(sizes, speeds)
    rules = Rules("gandiva_fair", {"trading": trading}, QUANTUM_US, QUANTUM_US)
    # Tickets are not scaled down, even if they exceed the cluster's GPUs.
    quotas = tuple(
        Entitlement(int(tenant), name, count)
        for tenant, row in sorted(tickets.items(), key=lambda item: int(item[0]))
        for name, count in sorted(row.items())
    )
    state = SimulationState(cluster, jobs, rules)
    gpus: dict[str, list[int]] = {}
    made, undone = [], []
    for number in range(quanta):
        state.advance(number * QUANTUM_US)
        decision = decide_round(replace(state.snapshot(), entitlements=quotas))
        state.apply(decision)
        held: Counter[str] = Counter()
        for lease in state.leases.values():
            held[f"{lease.tenant} {lease.gpu_type}"] += lease.gpus
        for key in held.keys() | gpus.keys():
            gpus.setdefault(key, [0] * number).append(held[key])
        made.append(sum(trade.rate_micro > 0 for trade in decision.trades))
        undone.append(sum(trade.rate_micro < 0 for trade in decision.trades))
    return {"gpus": dict(sorted(gpus.items())), "made": made, "undone": undone}


def _jobs(
    kinds: Sequence[Sequence[int]],
    ends: Mapping[str, int],
    speeds: Mapping[str, Mapping[str, int]],
) -> tuple[SimJob, ...]:
    rows: list[SimJob] = []
    for tenant, count, gang in kinds:
        end = ends.get(str(tenant))
        for _ in range(count):
            rows.append(
                SimJob(
                    len(rows) + 1,
                    tenant,
                    gang,
                    0,
                    ENDLESS_US,
                    profile=tenant if str(tenant) in speeds else 0,
                    cancel_us=None if end is None else end * QUANTUM_US,
                )
            )
    return tuple(rows)


def _cluster(sizes: Sizes, speeds: Mapping[str, Mapping[str, int]]) -> Cluster:
    nodes = [(name, size) for name, row in sizes.items() for size in row]
    profiles = {
        int(tenant): Profile(int(tenant), int(tenant), tuple(sorted(row.items())))
        for tenant, row in speeds.items()
    }
    return Cluster(
        tuple(Node(index, *node) for index, node in enumerate(nodes, start=1)),
        (),
        profiles=profiles,
    )
