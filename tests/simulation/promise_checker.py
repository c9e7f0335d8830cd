"""Check the promised starts of evenshare in single rounds, from the rules only.

The checker shares no code with the policy. It reads the snapshot and the decision of a round
(`tests.simulation.promise_round`). Rules are those of the policy's second edition, with its preset
"standard". `CHECKS` lists the checks; `tests.simulation.promise_bound` follows a sequence of
rounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from evenshare_core.domain.reasons import PreemptionRule
from evenshare_core.policies.evenshare.progress import BACKFILLED
from tests.simulation.promise_round import (
    ClaimKey,
    Part,
    Promise,
    RoundView,
    seconds,
)

# Rules 5 and 6: they end leases early, but no lease that a promise pins.
WITHOUT_PROMISES = (PreemptionRule.PAYS, PreemptionRule.DEFRAGMENT)

# ---- the promises after a round ----


def shape(view: RoundView) -> Iterator[str]:
    """A promise is of a known job and its gang, and each part is held + pins + after."""
    for number, count in Counter(row.job for row in view.rows).items():
        if count > 1:
            yield f"job {number} has {count} promises"
    for row in view.rows:
        job = view.jobs.get(row.job)
        if job is None:
            yield f"{view.name(row)}: no such job"
            continue
        parted = sum(part.gpus for part in row.parts)
        if not job.gpus == row.gpus == parted:
            yield f"{view.name(row)}: {row.gpus} GPUs, its parts {parted}, its gang {job.gpus}"
        if job.gpu_types and row.gpu_type not in job.gpu_types:
            yield f"{view.name(row)}: the job does not accept {row.gpu_type}"
        nodes = [part.node for part in row.parts]
        if nodes != sorted(set(nodes)):
            yield f"{view.name(row)}: nodes {nodes} are not sorted or occur twice"
        for part in row.parts:
            yield from _part(view, row, part)


def _part(view: RoundView, row: Promise, part: Part) -> Iterator[str]:
    label = f"{view.name(row)}: part on node {part.node}"
    node = view.nodes.get(part.node)
    if node is None or node.gpu_type != row.gpu_type or part.gpus > node.gpus:
        yield f"{label}: no node of {row.gpu_type} with {part.gpus} GPUs"
    pins, after = sum(part.pins.values()), sum(part.after.values())
    if part.gpus != part.held + pins + after:
        yield f"{label}: {part.gpus} GPUs are not {part.held} held + {pins} pins + {after} after"
    if part.gpus < 1 or part.held < 0 or min((*part.pins.values(), *part.after.values(), 1)) < 1:
        yield f"{label}: a count is below its minimum"


def waiting_job(view: RoundView) -> Iterator[str]:
    """A promise is of a job that holds no lease after the round, or that started in it."""
    holders = {lease.job for lease in view.running if lease.id}
    for row in view.rows:
        if row.job in holders:
            yield f"{view.name(row)}: the job holds a lease"


def held_gpus(view: RoundView) -> Iterator[str]:
    """Held GPUs are free, or used by leases that end by T; each GPU is held once.

    A lease's GPUs that no promise counts may stay counted as held until the lease becomes a pin.
    For each T, promises due by T share the free GPUs and those of leases that end by T.
    """
    for node in view.nodes.values():
        rows = [
            (row.due_us, part.held + _freed(view, part))
            for row in view.real
            for part in row.parts
            if part.node == node.id
        ]
        if not any(held for _, held in rows):
            continue
        free, lent = _room(view, node.id, node.gpus)
        for due_us in sorted({due_us for due_us, _ in rows}):
            by_us = view.due_round_us(due_us)
            held = sum(gpus for row_us, gpus in rows if row_us <= due_us)
            room = free + sum(gpus for until_us, gpus in lent if until_us <= by_us)
            if held > room:
                yield (
                    f"node {node.id}: promises due by {seconds(due_us)} hold {held} GPUs,"
                    f" {free} are free, {room - free} more are used until then"
                )


def _freed(view: RoundView, part: Part) -> int:
    """Return the pinned GPUs of leases that the round ended."""
    return sum(gpus for lease, gpus in part.pins.items() if lease in view.ended)


def _room(view: RoundView, node: int, size: int) -> tuple[int, list[tuple[int, int]]]:
    """Return a node's free GPUs, and the expiry and uncounted GPUs of each lease on it."""
    counted: Counter[tuple[str, int]] = Counter()
    for row in view.real:
        for part in row.parts:
            if part.node == node:
                counted.update({("lease", lease): gpus for lease, gpus in part.pins.items()})
                counted.update({("job", job): gpus for job, gpus in part.after.items()})
    free, lent = size, []
    for lease in view.running:
        gpus = dict(lease.placement).get(node, 0)
        free -= gpus
        used = counted["lease", lease.id] if lease.id else counted["job", lease.job]
        if gpus > used:
            lent.append((lease.expires_us, gpus - used))
    return max(0, free), lent


def pins(view: RoundView) -> Iterator[str]:
    """Pinned GPUs are in a lease that ends by the least T that pins it, and are counted once."""
    running = {lease.id: lease for lease in view.running if lease.id}
    counted: Counter[tuple[int, int]] = Counter()
    for row in view.real:
        for part in row.parts:
            for lease_id, gpus in part.pins.items():
                lease = running.get(lease_id)
                if lease is None:
                    if lease_id not in view.leases:
                        yield f"{view.name(row)}: pinned lease {lease_id} does not run"
                    continue
                counted[lease_id, part.node] += gpus
                if lease.expires_us > view.due_round_us(row.due_us):
                    until = seconds(lease.expires_us)
                    yield f"{view.name(row)}: pinned lease {lease_id} runs until {until}"
    for (lease_id, node), gpus in counted.items():
        has = dict(running[lease_id].placement).get(node, 0)
        if gpus > has:
            yield f"lease {lease_id} has {has} GPUs on node {node}, promises pin {gpus}"


def after_others(view: RoundView) -> Iterator[str]:
    """A part comes after a promise or a lease of this round, whose GPUs are counted once."""
    counted: Counter[tuple[int, int]] = Counter()
    for row in view.real:
        for part in row.parts:
            for job in part.after:
                counted[job, part.node] += part.after[job]
                yield from _ahead(view, row, job, part.node)
    for (job, node), gpus in counted.items():
        has = _ahead_gpus(view, job, node)
        if gpus > has:
            yield f"job {job} will have {has} GPUs on node {node}, {gpus} are promised after it"


def _ahead(view: RoundView, row: Promise, job: int, node: int) -> Iterator[str]:
    """Check that the lease of `job` ends by T of the promise that comes after it."""
    started = [lease for lease in view.running if not lease.id and lease.job == job]
    if any(gpus for lease in started for on, gpus in lease.placement if on == node):
        if started[0].expires_us > view.due_round_us(row.due_us):
            until = seconds(started[0].expires_us)
            yield f"{view.name(row)}: comes after the lease of job {job}, which ends at {until}"
        return
    ahead = view.after.get(job)
    if ahead is None:
        yield f"{view.name(row)}: comes after job {job}, which has no promise"
    elif row.due_us < ahead.due_us + view.snapshot.lease_us:
        yield f"{view.name(row)}: within the lease of job {job}, due {seconds(ahead.due_us)}"


def _ahead_gpus(view: RoundView, job: int, node: int) -> int:
    grant = view.grants.get(job)
    granted = dict(grant.placement).get(node, 0) if grant is not None else 0
    if granted or job not in view.after:
        return granted
    return dict(view.after[job].place).get(node, 0)


# ---- promises that a round makes, keeps or breaks ----


def kept(view: RoundView) -> Iterator[str]:
    """A promise lasts until its job starts, by T, or stops waiting, or a node of its place is lost.

    T never moves to a later time, and the place stays.
    """
    for row in view.before.values():
        if row.job not in view.waiting or row.job in view.grants or view.lost_node(row):
            continue
        now = view.after.get(row.job)
        if view.at_us >= row.due_us:
            yield f"{view.name(row)}: the job does not start at {seconds(view.at_us)}"
        elif now is None:
            yield f"{view.name(row)}: dropped, but the job waits and its nodes are there"
        elif now.made_us != row.made_us:
            yield f"{view.name(row)}: made again at {seconds(now.made_us)}"
        elif now.due_us > row.due_us:
            yield f"{view.name(row)}: moved to {seconds(now.due_us)}"
        elif now.place != row.place:
            yield f"{view.name(row)}: its place {row.place} became {now.place}"
        elif _could_start(view, row):
            yield f"{view.name(row)}: no lease is left on its place, but the job waits"


def _could_start(view: RoundView, row: Promise) -> bool:
    """Return whether the pins are over or due, and the place is free whatever other jobs hold."""
    pinned = {key for part in row.parts for key in part.pins}
    left = [lease for key, lease in view.leases.items() if key in pinned]
    is_left = not all(lease.ends_by(view.at_us) for lease in left)
    if is_left or any(part.after for part in row.parts):
        return False
    for part in row.parts:
        free = view.nodes[part.node].gpus
        for lease in view.leases.values():
            free -= 0 if lease.ends_by(view.at_us) else dict(lease.placement).get(part.node, 0)
        for other in view.before.values():
            if other is not row:
                free -= sum(one.gpus for one in other.parts if one.node == part.node)
        if free < part.gpus:
            return False
    return True


def new_promises(view: RoundView) -> Iterator[str]:
    """A new promise is of an owed tenant's waiting job, and states the time of its round.

    With the tenant's other promises, it is within the larger of quota and gang. T is within a lease
    length of the round, or of T of a promise that it comes after. If a promised job was backfilled
    in the round, T may come from that job's promise, and moves in the next round.
    """
    may_inherit = any(grant.key.note == BACKFILLED for grant in view.decision.grants)
    for row in view.rows:
        old = view.before.get(row.job)
        if old is not None and old.made_us == row.made_us:
            continue
        if row.job not in view.jobs:
            continue  # reported by `shape`
        if row.made_us != view.at_us:
            yield f"{view.name(row)}: new, but made at {seconds(row.made_us)}"
        if row.job not in view.waiting:
            yield f"{view.name(row)}: new, but the job was not waiting"
        claim = (view.jobs[row.job].tenant, row.gpu_type)
        key = view.key(claim, with_starts=False)
        if key >= 1:
            yield f"{view.name(row)}: new, but tenant {claim[0]} is not owed (key {key:g})"
        ahead = [
            view.after[job].due_us for part in row.parts for job in part.after.keys() & view.after
        ]
        latest_us = max([view.at_us + view.notice_us, *ahead]) + view.snapshot.longest_us
        if row.due_us > latest_us and not may_inherit:
            yield f"{view.name(row)}: its place is free by {seconds(latest_us)}"
        gpus = promised_gpus(view, claim)
        if gpus > max(view.quotas.get(claim, 0), row.gpus):
            quota = view.quotas.get(claim, 0)
            yield f"{view.name(row)}: tenant {claim[0]} has {gpus} promised GPUs, quota {quota}"


def promised_gpus(view: RoundView, claim: ClaimKey) -> int:
    """Return the GPUs of a claim's promises after the round."""
    return sum(
        row.gpus
        for row in view.real
        if row.job in view.jobs and (view.jobs[row.job].tenant, row.gpu_type) == claim
    )


def early_ends(view: RoundView) -> Iterator[str]:
    """No promise ends a lease before its expiry, except a lease on its pins at T, with notice."""
    for row in view.decision.preemptions:
        lease = view.leases.get(row.lease)
        if lease is None or lease.ends_by(view.at_us):
            continue
        pinning = [
            promise
            for promise in view.before.values()
            if any(lease.id in part.pins for part in promise.parts) and not view.lost_node(promise)
        ]
        if row.rule in WITHOUT_PROMISES:
            left = view.waiting.keys() - view.grants.keys()
            pinning = [one for one in pinning if one.job in left]
            if pinning:
                yield f"{view.name(pinning[0])}: rule {row.rule.value} ends pinned lease {lease.id}"
        elif not any(
            view.at_us >= one.due_us - view.notice_us for one in pinning if one.job == row.for_job
        ):
            until = seconds(lease.expires_us)
            yield f"lease {lease.id} ends for job {row.for_job} before its expiry at {until}"


CHECKS: tuple[Callable[[RoundView], Iterator[str]], ...] = (
    shape, waiting_job, held_gpus, pins, after_others, kept, new_promises, early_ends,
)  # fmt: skip # a table


def breaches(view: RoundView) -> list[str]:
    """Return every breach of a single round, with the name of its check; empty if none."""
    return [f"{check.__name__}: {text}" for check in CHECKS for text in check(view)]
