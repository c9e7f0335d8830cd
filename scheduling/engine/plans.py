"""Writes the plans that a round published, one row per job."""

from evenshare_core.domain.decision import Plan, PlanKind
from evenshare_core.domain.instants import from_us
from evenshare_core.money.fixed_point import to_credits
from scheduling.engine.write import RoundWrite

_COLUMNS = (
    *("job_id", "tenant_id", "round", "at", "kind", "gpu_type", "gpus", "borrowed"),
    *("starts_at", "ends_at", "price", "cost", "value", "needed", "lowest"),
)
_KINDS = (
    *("bigint", "bigint", "bigint", "timestamptz", "text", "text", "int", "int"),
    *("timestamptz", "timestamptz", "numeric", "numeric", "numeric", "numeric", "numeric"),
)
# Skip jobs that were deleted since the snapshot.
_WRITE = """
INSERT INTO scheduling_jobplan ({columns})
SELECT {chosen} FROM unnest({arrays}) AS x({columns})
JOIN scheduling_job j ON j.id = x.job_id
ON CONFLICT (job_id) DO UPDATE SET {updates}
""".format(
    columns=", ".join(_COLUMNS),
    chosen=", ".join(f"x.{name}" for name in _COLUMNS),
    arrays=", ".join(f"%s::{kind}[]" for kind in _KINDS),
    updates=", ".join(f"{name} = excluded.{name}" for name in _COLUMNS[1:]),
)


def write_plans(write: RoundWrite) -> None:
    """Write each plan, replacing its job's previous plan."""
    plans = write.plan.decision.plans
    if plans:
        rows = [_row(write, plan) for plan in plans]
        write.cursor.execute(_WRITE, [list(column) for column in zip(*rows, strict=True)])


def _row(write: RoundWrite, plan: Plan) -> tuple[object, ...]:
    starts = plan.kind is not PlanKind.REFUSED
    amounts = (
        *(plan.price_micro, plan.cost_micro, plan.value_micro),
        *(plan.needed_micro, plan.lowest_micro),
    )
    return (
        plan.job,
        plan.tenant,
        write.plan.snapshot.number,
        write.at,
        plan.kind.value,
        plan.gpu_type,
        plan.gpus,
        plan.borrowed,
        from_us(plan.start_us) if starts else None,
        from_us(plan.end_us) if starts else None,
        *map(to_credits, amounts),
    )
