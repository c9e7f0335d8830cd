"""Check that a round's jobs are those of the previous round, plus arrivals, minus ended ones. Pure.

Source: `scheduling.engine.changes` and `scheduling.engine.snapshot_rows`, which create them.
"""

from collections.abc import Iterator

from evenshare_core.domain.jobs import Job
from evenshare_core.domain.snapshot import Change, ChangeKind
from evenshare_core.verification.following_ids import FollowedRound, Pairing, RoundText

# Fields of a job that never change after its submission.
_FACTS = ("gpus", "submitted_us", "gpu_types", "weight")


def job_breaks(
    before: FollowedRound, after: FollowedRound, ids: Pairing, text: RoundText
) -> Iterator[str]:
    """Yield the jobs that were altered, or that appeared or vanished without a change."""
    first, second = before.snapshot, after.snapshot
    now = {job.id: job for job in second.jobs}
    changes = _by_job(second.changes)
    counted = {row.job: row for row in second.service.jobs}
    granted = _granted_terms(before, ids)
    was = {ids.job(job.id): job for job in first.jobs}
    held = {ids.job(lease.job) for lease in first.leases} | granted.keys()
    for job, row in now.items():
        kinds = {change.kind: change for change in changes.get(job, ())}
        if job not in counted and ChangeKind.ACTIVE not in kinds:
            yield f"The sums do not count {text.job(job)}, and no change says that it came."
        elif job not in counted and kinds[ChangeKind.ACTIVE].gpus != row.gpus:
            yield (
                f"{text.job(job).capitalize()} asks for {row.gpus} GPUs, and the change that"
                f" says that it came for {kinds[ChangeKind.ACTIVE].gpus}."
            )
        elif job in counted and counted[job].demand != row.gpus:
            yield (
                f"{text.job(job).capitalize()} asks for {row.gpus} GPUs, and its sums are of"
                f" {counted[job].demand}."
            )
        if ChangeKind.INACTIVE in kinds:
            yield f"A change says that {text.job(job)} is over, and it is among the jobs."
        if job in was:
            yield from _altered(was[job], row, granted.get(job, 0), ids, text)
    for job in sorted(was.keys() - now.keys() - held):
        if not any(change.kind is ChangeKind.INACTIVE for change in changes.get(job, ())):
            name = text.job(job).capitalize()
            yield f"{name}, which waited, is gone, and no change says that it is over."
    yield from _holds(after, changes, text)
    yield from _backoffs(before, after, ids, held, text)


def _by_job(changes: tuple[Change, ...]) -> dict[int, list[Change]]:
    by_job: dict[int, list[Change]] = {}
    for change in changes:
        if change.job:
            by_job.setdefault(change.job, []).append(change)
    return by_job


def _granted_terms(before: FollowedRound, ids: Pairing) -> dict[int, int]:
    """Return how many of the previous round's terms for each job were applied."""
    decision = before.decision
    left_out = {(row["item"], row["id"]) for row in before.superseded}
    terms: dict[int, int] = {}
    for grant in decision.grants:
        if ("grant", grant.job) not in left_out:
            terms[ids.job(grant.job)] = terms.get(ids.job(grant.job), 0) + 1
    for renewal in decision.renewals:
        if ("renewal", renewal.lease) not in left_out:
            terms[ids.job(renewal.job)] = terms.get(ids.job(renewal.job), 0) + 1
    return terms


def _altered(was: Job, now: Job, granted: int, ids: Pairing, text: RoundText) -> Iterator[str]:
    wrong = [
        f"{name} {getattr(now, name)} instead of {getattr(was, name)}"
        for name in _FACTS
        if getattr(now, name) != getattr(was, name)
    ]
    if now.tenant != ids.tenant(was.tenant):
        wrong.append(f"{text.tenant(now.tenant)} instead of {text.tenant(ids.tenant(was.tenant))}")
    if now.terms != was.terms + granted:
        wrong.append(f"terms {now.terms} instead of {was.terms + granted}")
    if wrong:
        name = text.job(now.id).capitalize()
        yield f"{name} differs from the job in {text.before}: {', '.join(wrong)}."


def _holds(
    after: FollowedRound, changes: dict[int, list[Change]], text: RoundText
) -> Iterator[str]:
    """Check that changes give a gang all of its GPUs, or none."""
    demands = {row.job: row.demand for row in after.snapshot.service.jobs}
    for job, of_job in changes.items():
        for change in of_job:
            if change.kind is ChangeKind.ACTIVE:
                demands[job] = change.gpus
            elif change.kind is ChangeKind.HOLD and change.gpus != demands.get(job):
                yield (
                    f"A change says that {text.job(job)} holds {change.gpus} GPUs,"
                    f" and it asks for {demands.get(job, 0)}."
                )


def _backoffs(
    before: FollowedRound, after: FollowedRound, ids: Pairing, held: set[int], text: RoundText
) -> Iterator[str]:
    """Check that jobs without GPUs have unchanged back-offs, because they lost no process."""
    waited = {ids.job(job.id) for job in before.snapshot.jobs} - held
    were = {ids.job(row.job): row.until_us for row in before.snapshot.backoffs}
    are = {row.job: row.until_us for row in after.snapshot.backoffs}
    waits = {job.id for job in after.snapshot.jobs}
    for job in sorted(waited & waits & (were.keys() | are.keys())):
        was, now = were.get(job, 0), are.get(job, 0)
        if was != now and max(was, now) > after.snapshot.at_us:
            yield (
                f"{text.job(job).capitalize()} may not start before {now:,} µs, and"
                f" {text.before} said {was:,} µs; it held nothing meanwhile."
            )
