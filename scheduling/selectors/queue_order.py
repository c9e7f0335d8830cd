"""The order of a pool's queue: in which its policy takes the jobs that wait, as of a round.

The one place that says a job's position; pages, the API and with it the command ask it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from evenshare_core.domain.instants import to_us
from evenshare_core.policies.base import queue_order
from evenshare_core.policies.options import OptionError
from evenshare_core.policies.registry import POLICIES
from scheduling.models import Job, Round
from scheduling.selectors.stored_rounds import ReplayError, round_values
from tenants.scopes import site_reading

NO_QUEUE = "This policy has no single queue: it shares the GPUs anew in each round."
UNREADABLE = "The last round cannot be read, so nobody has a position until the next one."
FIRST = "No round has been decided yet."


class QueuePosition(NamedTuple):
    """A queued job's places, from 1: in its pool's order and among its tenant's jobs there."""

    pool: int
    tenant: int


class QueueKey(NamedTuple):
    """A queued job's place as a sort key: those with a position first, others by arrival."""

    unplaced: int
    place: int
    job: int


class QueueMark(NamedTuple):
    """Behind which job of which pool a page of queued jobs begins, in the order of `round`.

    0 is before the first round. Queues move: the order of another round would show jobs twice,
    or never.
    """

    pool: str
    round: int
    key: QueueKey


@dataclass(frozen=True, slots=True)
class QueueOrder:
    """A pool's queued jobs after round `round`, in order; those in quarantine are not among them.

    `keys` has all of them; `is_ordered` says whether by the policy or by arrival. `positions`
    leaves out those that the round did not know or may not start, and all where the policy has no
    order; `text` says who goes first, or why nobody does.
    """

    round: int | None
    text: str
    is_ordered: bool = False
    keys: Mapping[int, QueueKey] = field(default_factory=dict)
    positions: Mapping[int, QueuePosition] = field(default_factory=dict)

    @property
    def jobs(self) -> list[int]:
        """All queued jobs, in order."""
        return sorted(self.keys, key=self.keys.__getitem__)


def read_queue_order(pool_id: int, *, as_of: int | None = None) -> QueueOrder:
    """Return the order of a pool's queue by round `as_of`, else by its last one.

    Three queries, one fewer while the round's bytes are remembered; of all tenants, so whoever
    asks in a tenant's scope shows others' positions at most.
    """
    with site_reading():
        rounds = Round.objects.filter(pool_id=pool_id).order_by("-number")
        last = (rounds.filter(number=as_of) if as_of is not None else rounds).first()
        queued = Job.objects.filter(pool_id=pool_id, state=Job.State.PENDING, quarantine="")
        rows = list(queued.values_list("id", "tenant_id", "submitted_at"))
        order, text = _order(_StoredRound(last)) if last is not None else (None, FIRST)
    places = {job: place for place, job in enumerate(order or ())}
    keys = {
        job: QueueKey(0, places[job], job) if job in places else QueueKey(1, to_us(at), job)
        for job, _, at in rows
    }
    tenants = {job: tenant for job, tenant, _ in rows}
    placed = sorted((job for job in keys if job in places), key=keys.__getitem__)
    number, is_ordered = last.number if last else None, order is not None
    return QueueOrder(number, text, is_ordered, keys, _positions(placed, tenants))


def read_queue_orders(jobs: Iterable[Job]) -> dict[int, QueueOrder]:
    """Return the orders of the pools in which some of these jobs are queued, by pool."""
    pools = {job.pool_id for job in jobs if is_queued(job)}
    return {pool_id: read_queue_order(pool_id) for pool_id in sorted(pools)}


def is_queued(job: Job) -> bool:
    """Whether a job is in its pool's queue: one in quarantine waits, but for no round."""
    return job.state == Job.State.PENDING and not job.quarantine


def list_queue(order: QueueOrder, *, after: QueueKey | None, limit: int) -> tuple[list[Job], bool]:
    """Return queued jobs in order, behind a key, and whether there are more. One query."""
    ids = [job for job in order.jobs if after is None or order.keys[job] > after]
    page = ids[:limit]
    jobs = Job.objects.select_related("tenant").in_bulk(page)
    return [jobs[job] for job in page if job in jobs], len(ids) > limit


def _positions(placed: list[int], tenants: Mapping[int, int]) -> dict[int, QueuePosition]:
    of_tenant: dict[int, int] = {}
    positions: dict[int, QueuePosition] = {}
    for place, job in enumerate(placed, start=1):
        tenant = tenants[job]
        of_tenant[tenant] = of_tenant.get(tenant, 0) + 1
        positions[job] = QueuePosition(place, of_tenant[tenant])
    return positions


class _StoredRound:
    """A round as a key of the cache: equal where the bytes are the same."""

    def __init__(self, round_: Round) -> None:
        self.round = round_
        self._key = (round_.snapshot_sha256, round_.decision_sha256)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _StoredRound) and self._key == other._key


@lru_cache(maxsize=8)
def _order(stored: _StoredRound) -> tuple[tuple[int, ...] | None, str]:
    """The order that a round left, and who goes first; None and why there is none.

    Every open job page asks for the same round at once.
    """
    try:
        snapshot, decision = round_values(stored.round)
        order = queue_order(snapshot, decision.service)
    except (ReplayError, OptionError, LookupError):
        return None, UNREADABLE
    return order, NO_QUEUE if order is None else POLICIES[snapshot.policy].order_text
