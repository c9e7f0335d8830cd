"""Check that a round's leases are those that the previous round left. Pure.

A snapshot has at most one lease of a job, so leases are compared by their job. It leaves out leases
whose process is being stopped, and their jobs.

Source: `scheduling.engine.apply`, `grants`, `observe` and `revoke`, which write them.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from evenshare_core.domain.cluster import Placement
from evenshare_core.domain.decision import Renew
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.snapshot import Change, ChangeKind, JobService
from evenshare_core.policies import registry
from evenshare_core.verification.following_ids import FollowedRound, Pairing, RoundText
from evenshare_core.verification.following_texts import (
    FIELD,
    GIVEN_BACK,
    LEASE_DIFFERS,
    LEASE_ENDED,
    LEASE_GONE,
    LEASE_NOT_GRANTED,
    NOT_LEASE_GRANTED,
    NOT_LEASE_LEFT,
    OTHER,
    PLACES,
    capital,
)

# A time that is not known, because the policy that set it no longer exists.
NOT_KNOWN = -1


def lease_breaks(
    before: FollowedRound, after: FollowedRound, ids: Pairing, text: RoundText
) -> Iterator[str]:
    """Yield leases that started, ended or changed otherwise than the previous decision states."""
    left, over = _left(before, ids)
    known = {ids.lease(lease.id) for lease in before.snapshot.leases}
    now = {lease.job: lease for lease in after.snapshot.leases}
    holds = _Holds(before, after, ids)
    for job, lease in now.items():
        was = left.get(job)
        if was is None:
            why = LEASE_ENDED if job in over else LEASE_NOT_GRANTED
            yield why.format(
                job=capital(text.job(job)),
                gpus=lease.gpus,
                gpu_type=lease.gpu_type,
                before=text.before,
            )
            continue
        if ids.by_name and (lease.id != was.id if was.id else lease.id in known):
            why = NOT_LEASE_LEFT if was.id else NOT_LEASE_GRANTED
            yield why.format(job=text.job(job), before=text.before)
        wrong = [*_altered(was, lease, text), *holds.wrong_start(was, lease)]
        if wrong:
            yield LEASE_DIFFERS.format(
                job=text.job(job), before=text.before, fields=", ".join(wrong)
            )
    jobs = {job.id for job in after.snapshot.jobs}
    for job in sorted(left.keys() - now.keys()):
        # If the snapshot lacks the job, the lease's process is being stopped. A lease that never
        # ran just ends.
        if job in jobs and holds.holds(left[job]):
            yield LEASE_GONE.format(
                job=capital(text.job(job)),
                gpus=left[job].own + left[job].borrowed,
                gpu_type=left[job].gpu_type,
                before=text.before,
            )


def _left(before: FollowedRound, ids: Pairing) -> tuple[dict[int, Lease], set[int]]:
    """Return the leases that continue after a round, and the jobs of leases that it ended.

    Both are by the job ids of the later round. The id of a newly granted lease is 0.
    """
    snapshot, decision = before.snapshot, before.decision
    left_out = {(row["item"], row["id"]) for row in before.superseded}
    lengths = {row.job: row.lease_us for row in decision.lengths}
    renewals = {row.lease: row for row in decision.renewals}
    ends = {row.lease for row in decision.ends}
    left: dict[int, Lease] = {}
    over: set[int] = set()
    for lease in snapshot.leases:
        if ("renewal", lease.id) in left_out or (
            lease.id in ends and ("end", lease.id) not in left_out
        ):
            over.add(ids.job(lease.job))
            continue
        renewal = renewals.get(lease.id)
        until_us = snapshot.at_us + lengths.get(lease.job, snapshot.lease_us)
        left[ids.job(lease.job)] = _of_lease(lease, renewal, until_us, ids)
    protected_us = _protection(before)
    for grant in decision.grants:
        if ("grant", grant.job) in left_out:
            continue
        until_us = snapshot.at_us + lengths.get(grant.job, snapshot.lease_us)
        left[ids.job(grant.job)] = Lease(
            0, ids.job(grant.job), ids.tenant(grant.tenant), grant.gpu_type, grant.placement,
            snapshot.at_us, until_us, 1, grant.own, grant.borrowed, grant.price_micro,
            protected_us,
        )  # fmt: skip # rows of what belongs together
    return left, over


def _of_lease(lease: Lease, renewal: Renew | None, until_us: int, ids: Pairing) -> Lease:
    left = replace(
        lease, id=ids.lease(lease.id), job=ids.job(lease.job), tenant=ids.tenant(lease.tenant)
    )
    if renewal is None:
        return left
    return replace(
        left, expires_us=until_us, term=lease.term + 1, own=renewal.own,
        borrowed=renewal.borrowed, price_micro=renewal.price_micro,
    )  # fmt: skip # rows of what belongs together


def _protection(before: FollowedRound) -> int:
    """Return until when a round's new leases are protected; `NOT_KNOWN` without the policy."""
    snapshot = before.snapshot
    if snapshot.policy not in registry.POLICIES:
        return NOT_KNOWN
    min_us = registry.options_of(snapshot).min_runtime_us
    return snapshot.at_us + min_us if min_us else 0


def _altered(was: Lease, now: Lease, text: RoundText) -> Iterator[str]:
    """Yield the altered fields of a lease, except its start."""
    if now.tenant != was.tenant:
        yield OTHER.format(now=text.tenant(now.tenant), was=text.tenant(was.tenant))
    if now.placement != was.placement:
        yield PLACES.format(now=_places(now.placement), was=_places(was.placement))
    for name in ("gpu_type", "expires_us", "term", "own", "borrowed", "price_micro"):
        if getattr(now, name) != getattr(was, name):
            yield FIELD.format(field=name, now=getattr(now, name), was=getattr(was, name))
    until_us = was.protected_until_us
    if until_us:
        until_us += max(now.started_us - was.started_us, 0)
    is_known = was.id or was.protected_until_us != NOT_KNOWN
    if is_known and now.protected_until_us != until_us:
        yield FIELD.format(field="protected_until_us", now=now.protected_until_us, was=until_us)


def _places(placement: Placement) -> str:
    return "+".join(f"{node}:{gpus}" for node, gpus in placement)


class _Holds:
    """The jobs that hold GPUs between the rounds, by the sums and the changes."""

    def __init__(self, before: FollowedRound, after: FollowedRound, ids: Pairing) -> None:
        self._since_us, self._at_us = before.snapshot.at_us, after.snapshot.at_us
        rows = before.decision.service.jobs
        self._rows: dict[int, JobService] = {ids.job(row.job): row for row in rows if row.held}
        self._changes: dict[int, list[Change]] = {}
        for change in after.snapshot.changes:
            if change.kind in (ChangeKind.HOLD, ChangeKind.RELEASE, ChangeKind.INACTIVE):
                self._changes.setdefault(change.job, []).append(change)

    def holds(self, lease: Lease) -> bool:
        """Return whether a lease held GPUs, and no change released them."""
        changes = self._changes.get(lease.job, [])
        if changes:
            return changes[-1].kind is ChangeKind.HOLD
        return self._held(lease)

    def _held(self, lease: Lease) -> bool:
        """Return whether the previous round's sums count this lease, and not an earlier one."""
        row = self._rows.get(lease.job)
        return row is not None and bool(lease.id) and row.held_since_us >= lease.started_us

    def wrong_start(self, was: Lease, now: Lease) -> Iterator[str]:
        """Check that a lease starts only once, when its job gets its GPUs, and keeps them."""
        changes = self._changes.get(now.job, [])
        holds = [change for change in changes if change.kind is ChangeKind.HOLD]
        if now.started_us != was.started_us:
            earliest_us = min(max(now.started_us, self._since_us), self._at_us)
            began = any(change.at_us >= earliest_us for change in holds)
            # If the previous lease's end was recorded late, the next lease takes over its GPUs.
            late = not holds and now.job in self._rows and not self._held(was)
            if now.started_us < was.started_us or not (began or late):
                yield FIELD.format(field="started_us", now=now.started_us, was=was.started_us)
        elif self._held(was) and changes and changes[-1].kind is not ChangeKind.HOLD:
            yield GIVEN_BACK.format(at=changes[-1].at_us)
