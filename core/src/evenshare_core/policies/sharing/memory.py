"""Memory of a sharing policy between rounds, in plain JSON.

- `key`, `shares`, `solve`: the last program and its solution in micro-GPUs. It is reused while the
  program and the order of its job types do not change.
- `at_us`, `rows`, `bound`: the deviation at `at_us` per job type and GPU type, and its growth rate
  since then (ideal - held). It is kept within +-bound. - `extra`: jobs whose current lease uses
  GPUs that other job types could not use. These GPUs do not count as received.
- the memory of `evenshare_core.policies.shared.reservation`.

Deviations grow with time, not with rounds: (ideal - held) x elapsed, in GPUs x leases. A round is
skipped if nothing changed, no job waits and no lease is due. The round would not have changed any
growth rate, so skipping it makes no difference
(tests/papers/test_oef_rounds.py::TestSkippedRounds::test_deviations_are_unchanged).
"""

from collections.abc import Iterable, Sequence
from typing import Any

from evenshare_core.domain.decision import Solve
from evenshare_core.domain.ids import Each, Fields, IdKind, Row
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.placement.rounding import deviation
from evenshare_core.policies.shared.reservation import MEMORY_IDS as RESERVATION_IDS
from evenshare_core.policies.sharing.job_types import JobType, RoundProgram, SolvedShares
from evenshare_core.units import GPU_MICRO

_OF_JOB_TYPE = Each(Row((IdKind.TENANT, IdKind.PROFILE)))
MEMORY_IDS = Fields(
    {
        "at_us": None, "bound": None, "extra": Each(IdKind.JOB), "key": None,
        "rows": _OF_JOB_TYPE, "shares": _OF_JOB_TYPE, "solve": None,
    }
    | dict(RESERVATION_IDS)
)  # fmt: skip # a table


def stored_shares(memory: dict[str, Any], program: RoundProgram) -> SolvedShares | None:
    """Return the stored shares if program and job types are the same, or None if they differ."""
    if memory.get("key") != program.key:
        return None
    micro = {(tenant, profile): tuple(micro) for tenant, profile, micro in memory["shares"]}
    if tuple(micro) != program.keys:
        return None
    solve = memory["solve"]
    return SolvedShares(
        program.key,
        micro,
        None if solve is None else Solve(*solve),
    )


def read_deviations(snapshot: Snapshot, job_types: Iterable[JobType]) -> None:
    """Advance the deviations of the remaining job types to the time of the round."""
    memory = snapshot.memory
    elapsed_us = max(0, snapshot.at_us - memory.get("at_us", snapshot.at_us))
    bound = memory.get("bound", 0)
    known = {(tenant, profile): of_type for tenant, profile, of_type in memory.get("rows", ())}
    for job_type in job_types:
        by_gpu_type = known.get(job_type.key, {})
        for type_index, capacity in enumerate(job_type.types):
            before, rate = by_gpu_type.get(capacity.name, (0, 0))
            job_type.deviation[type_index] = deviation(before, rate * elapsed_us, 0, bound)


def write_memory(
    snapshot: Snapshot,
    shares: SolvedShares,
    job_types: Sequence[JobType],
    rates: Sequence[Sequence[int]],
    extra: Iterable[int],
) -> dict[str, Any]:
    """Return the memory for the next round, without reservations."""
    deviations = []
    for job_type, rate_of in zip(job_types, rates, strict=True):
        parts = {
            capacity.name: [job_type.deviation[type_index], rate_of[type_index]]
            for type_index, capacity in enumerate(job_type.types)
            if job_type.deviation[type_index] or rate_of[type_index]
        }
        if parts:
            deviations.append([job_type.tenant, job_type.profile, parts])
    solve = shares.solve
    return {
        "at_us": snapshot.at_us,
        "bound": bound_of(job_types, snapshot.lease_us),
        "extra": sorted(extra),
        "key": shares.key,
        "rows": deviations,
        "shares": [[*key, list(micro)] for key, micro in shares.micro.items()],
        "solve": None
        if solve is None
        else [solve.backend, solve.status, solve.objective, solve.fallback],
    }


def bound_of(job_types: Iterable[JobType], lease_us: int) -> int:
    """Return the bound of deviations: the most that the largest gang's lease may cost others."""
    return max((job_type.largest for job_type in job_types), default=0) * GPU_MICRO * lease_us
