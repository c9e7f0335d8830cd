"""A policy's picks from a plan: the jobs that start now, and their GPUs by node."""

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
    """Place the jobs that a plan starts now: SLO jobs first, then by descending reward.

    `free_gpus` are by node, including those of jobs whose leases end now; `held` has the GPUs of
    these jobs. A renewed job keeps them if its option allows it. `problem.free[0]` must be
    `evenshare_core.deadlines.options.free_cells` of `free_gpus`.

    Raises:
        ValueError: a held option is planned for a job that holds nothing.
    """
    rows = sorted(
        plan.now(is_slo_cycle=problem.is_slo_cycle),
        key=lambda row: (row.is_now, -row.reward_micro, row.job),
    )
    demands = [CellDemand(row.job, row.option, held.get(row.job, {})) for row in rows]
    return place_cells(free_gpus, demands)
