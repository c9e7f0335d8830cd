"""What a policy takes from a plan: the jobs that begin now, on which GPUs of which nodes."""

from __future__ import annotations

from collections.abc import Mapping

from evenshare_core.deadlines.cells import CellDemand, CellPlacement, GpusByNode, place_cells
from evenshare_core.deadlines.model import SelectorProblem
from evenshare_core.deadlines.plans import SelectorPlan


def picks_now(
    problem: SelectorProblem,
    plan: SelectorPlan,
    free_gpus: GpusByNode,
    held: Mapping[int, GpusByNode],
) -> CellPlacement:
    """Place what a plan begins now, SLO jobs first, then those of most reward.

    `free_gpus`: by node, those of jobs whose leases end now among them; `held`: by job, the GPUs of
    those. A job that is renewed keeps them where its option lets it. `problem.free[0]` must be what
    `evenshare_core.deadlines.options.free_cells` says of `free_gpus`.

    Raises:
        ValueError: a held option is planned for a job that holds nothing.
    """
    rows = sorted(
        plan.now(is_slo_cycle=problem.is_slo_cycle),
        key=lambda row: (row.is_now, -row.reward_micro, row.job),
    )
    demands = [CellDemand(row.job, row.option, held.get(row.job, {})) for row in rows]
    return place_cells(free_gpus, demands)
