"""Check that a round's jobs are those of the previous round, plus arrivals, minus ended ones. Pure.

Source: `scheduling.engine.changes` and `scheduling.engine.snapshot_rows`, which create them.
"""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from evenshare_core.domain.held_jobs import HoldCode
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.snapshot import Change, ChangeKind
from evenshare_core.policies.shared.places import places_after
from evenshare_core.verification.following_ids import FollowedRound, Pairing, RoundText
from evenshare_core.verification.following_texts import (
    BACKOFF_DIFFERS,
    CAME_FOR_OTHER,
    COUNTED_FOR_OTHER,
    FIELD,
    GONE,
    HELD_DIFFERS,
    HOLDS_OTHER,
    JOB_DIFFERS,
    NOT_COUNTED,
    OTHER,
    OVER_BUT_HERE,
    RELEASED_EARLY,
    capital,
)

# Fields of a job that never change after its submission. The time changes if the job is held, or
# exchanges its place with another job of its tenant.
_FACTS = ("gpus", "submitted_us", "gpu_types", "weight")
_COMES_AND_GOES = (ChangeKind.ACTIVE, ChangeKind.INACTIVE)


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
    kept = places_after(first, before.decision, before.superseded)
    places = {ids.job(job): place_us for job, place_us in kept.items()}
    held = {ids.job(lease.job) for lease in first.leases} | granted.keys()
    for job, row in now.items():
        kinds = {change.kind: change for change in changes.get(job, ())}
        if job not in counted and ChangeKind.ACTIVE not in kinds:
            yield NOT_COUNTED.format(job=text.job(job))
        elif job not in counted and kinds[ChangeKind.ACTIVE].gpus != row.gpus:
            yield CAME_FOR_OTHER.format(
                job=capital(text.job(job)), gpus=row.gpus, counted=kinds[ChangeKind.ACTIVE].gpus
            )
        elif job in counted and counted[job].demand != row.gpus:
            yield COUNTED_FOR_OTHER.format(
                job=capital(text.job(job)), gpus=row.gpus, counted=counted[job].demand
            )
        if _is_over(changes.get(job, ())):
            yield OVER_BUT_HERE.format(job=text.job(job))
        if job in was:
            again = job in counted and ChangeKind.ACTIVE in kinds
            known = replace(was[job], submitted_us=places.get(job, was[job].submitted_us))
            yield from _altered(known, row, granted.get(job, 0), ids, text, again=again)
    for job in sorted(was.keys() - now.keys() - held):
        if not _is_over(changes.get(job, ())):
            yield GONE.format(job=capital(text.job(job)))
    yield from _holds(after, changes, text)
    yield from _held_jobs(before, after, ids, text)
    yield from _backoffs(before, after, ids, held, text)


def _by_job(changes: tuple[Change, ...]) -> dict[int, list[Change]]:
    by_job: dict[int, list[Change]] = {}
    for change in changes:
        if change.job:
            by_job.setdefault(change.job, []).append(change)
    return by_job


def _is_over(changes: Iterable[Change]) -> bool:
    """Return whether a job ended, or was held, and did not arrive again."""
    kinds = [change.kind for change in changes if change.kind in _COMES_AND_GOES]
    return bool(kinds) and kinds[-1] is ChangeKind.INACTIVE


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


def _altered(
    was: Job, now: Job, granted: int, ids: Pairing, text: RoundText, *, again: bool
) -> Iterator[str]:
    """Yield a job's wrong fields; `again`: it was held and released, so it arrived later."""
    if again and now.submitted_us > was.submitted_us:
        was = replace(was, submitted_us=now.submitted_us)
    wrong = [
        FIELD.format(field=name, now=getattr(now, name), was=getattr(was, name))
        for name in _FACTS
        if getattr(now, name) != getattr(was, name)
    ]
    if now.tenant != ids.tenant(was.tenant):
        before = text.tenant(ids.tenant(was.tenant))
        wrong.append(OTHER.format(now=text.tenant(now.tenant), was=before))
    if now.terms != was.terms + granted:
        wrong.append(FIELD.format(field="terms", now=now.terms, was=was.terms + granted))
    if wrong:
        name = capital(text.job(now.id))
        yield JOB_DIFFERS.format(job=name, before=text.before, fields=", ".join(wrong))


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
                yield HOLDS_OTHER.format(
                    job=text.job(job), gpus=change.gpus, demand=demands.get(job, 0)
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
            yield BACKOFF_DIFFERS.format(
                job=capital(text.job(job)), now=f"{now:,}", before=text.before, was=f"{was:,}"
            )


def _held_jobs(
    before: FollowedRound, after: FollowedRound, ids: Pairing, text: RoundText
) -> Iterator[str]:
    """Check that a held job stays the same job, and waits until it is released or its time comes.

    People hold and release jobs, so two rounds cannot show whether a job should be held. Its
    earliest start is known.
    """
    were = {ids.job(row.job): row for row in before.snapshot.holds}
    waited = {ids.job(job.id): (job.gpus, ids.tenant(job.tenant)) for job in before.snapshot.jobs}
    waited |= {job: (row.gpus, ids.tenant(row.tenant)) for job, row in were.items()}
    released = [job for job in after.snapshot.jobs if job.id in were]
    here = [(job.id, (job.gpus, job.tenant)) for job in released]
    here += [(row.job, (row.gpus, row.tenant)) for row in after.snapshot.holds]
    for job_id, now in here:
        was = waited.get(job_id, now)
        if was != now:
            yield HELD_DIFFERS.format(
                job=capital(text.job(job_id)),
                gpus=now[0],
                tenant=text.tenant(now[1]),
                before=text.before,
                gpus_before=was[0],
                tenant_before=text.tenant(was[1]),
            )
    for job in released:
        row = were[job.id]
        if row.code is HoldCode.NOT_BEFORE and row.until_us > after.snapshot.at_us:
            yield RELEASED_EARLY.format(
                job=capital(text.job(job.id)), before=text.before, until=f"{row.until_us:,}"
            )
