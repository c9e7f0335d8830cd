"""Events of promised starts: new promises with their rate, late starts, and ended promises.

The rate is an option of the policy. It applies to the promises of a round that is decided with it.
"""

from collections.abc import Iterable, Mapping

from evenshare_core.domain.instants import to_us
from evenshare_core.fairness.promised_starts import jobs_of_lost_places
from evenshare_core.money.fixed_point import to_text
from evenshare_core.policies import registry
from evenshare_core.policies.promised_start import (
    LateStart,
    PromisedStart,
    excused_promises,
    late_starts,
    new_promises,
)
from scheduling.engine.write import Kind, RoundWrite
from scheduling.models import LeaseEvent


def record_promises(write: RoundWrite) -> None:
    """Record new promises if a late start earns a credit, and how earlier promises ended.

    Late starts are recorded if their promise was. An additional query if a start is late.
    """
    snapshot, decision = write.plan.snapshot, write.plan.decision
    before, after = (
        registry.promised_starts(snapshot.policy, snapshot.policy_version, memory)
        for memory in (snapshot.memory, decision.memory)
    )
    tenants = {job.id: job.tenant for job in snapshot.jobs}
    rate_micro = registry.options_of(snapshot).late_credit_micro
    if rate_micro:
        _record_new(write, new_promises(before, after), tenants, to_text(rate_micro))
    if late := late_starts(before, snapshot, decision):
        _record_late(write, late)
    if excused := excused_promises(before, after, snapshot, decision):
        lost = jobs_of_lost_places(snapshot, decision)
        for row in excused:
            data = {"due_us": row.due_us, "lost_node": row.job in lost}
            write.events.add(
                Kind.PROMISE_ENDED, write.at, data, job=row.job, tenant=tenants[row.job]
            )


def _record_new(
    write: RoundWrite, rows: Iterable[PromisedStart], tenants: Mapping[int, int], rate: str
) -> None:
    for row in rows:
        data = {
            "gpu_type": row.gpu_type,
            "gpus": row.gpus,
            "rate": rate,
            "due_us": row.due_us,
        }
        write.events.add(Kind.PROMISED, write.at, data, job=row.job, tenant=tenants[row.job])


def _record_late(write: RoundWrite, late: Iterable[LateStart]) -> None:
    rows = {(row.job, row.made_us): row for row in late}
    promised = LeaseEvent.objects.filter(
        job_id__in={job for job, _ in rows}, kind=Kind.PROMISED
    ).values_list("job_id", "at", "round", "data")
    for job, at, number, data in promised.order_by("id"):
        row = rows.get((job, to_us(at)))
        if row is None:
            continue
        facts = {
            "gpu_type": row.gpu_type,
            "gpus": row.gpus,
            "rate": data["rate"],
            "promised_round": number,
            "latest_us": row.latest_us,
            "until_us": row.until_us,
            "started": row.has_started,
        }
        write.events.add(Kind.LATE_START, write.at, facts, job=job, tenant=row.tenant)
