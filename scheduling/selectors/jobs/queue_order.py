"""The order in which a pool's policy takes the waiting jobs, after a round.

All positions in pages, the API and the command line come from here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from django.db.models import QuerySet
from django.utils.translation import gettext as _

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.instants import from_us, to_us
from evenshare_core.domain.reasons import Reason
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.base import queue_order
from evenshare_core.policies.options import OptionError
from evenshare_core.policies.registry import POLICIES
from scheduling.models import Job, Round, RoundSealing
from scheduling.selectors.rounds.stored import ReplayError, round_values
from tenants.language import gettext_noop
from tenants.language import number as numeral
from tenants.scopes import site_reading

NO_QUEUE = gettext_noop("This policy has no queue: it divides the GPUs again in each round.")
UNREADABLE = gettext_noop(
    "The last round cannot be read, so there are no positions until the next round."
)
FIRST = gettext_noop("No round has been decided yet.")
NOT_YET = gettext_noop("The order of the last round is not known yet.")
# At most this many jobs have positions and are read for a page. Other jobs follow by arrival.
FIRST_JOBS = 1000
BEHIND = gettext_noop(
    "Only the first {count} jobs have positions; later jobs are listed by arrival."
)
# The number of rounds per pool whose first jobs are kept, for pages that continue an earlier order.
KEPT_QUEUES = 4


class QueuePosition(NamedTuple):
    """A queued job's positions from 1: in the pool's order, and among its tenant's jobs in it."""

    pool: int
    tenant: int


class QueueKey(NamedTuple):
    """The sort key of a queued job: jobs with a position come first, others follow by arrival."""

    unplaced: int
    place: int
    job: int


class QueueMark(NamedTuple):
    """The pool and the job after which a page of queued jobs starts, in the order of `round`.

    `round` is 0 before the first round. Queues change: with the order of another round, jobs would
    appear twice or not at all.
    """

    pool: str
    round: int
    key: QueueKey


@dataclass(frozen=True, slots=True)
class QueueOrder:
    """A pool's queued jobs after round `round`, in order, without jobs in quarantine.

    `keys` has all jobs, or the first of a long queue. `is_ordered`: the order is the policy's, not
    the order of arrival. `positions` leaves out jobs that were not in the round or may not start;
    it is empty if the policy has no order. `text` explains the order, or why there are no
    positions. `is_long`: more than `FIRST_JOBS` jobs are queued, and the rest follows by arrival.
    """

    round: int | None
    text: str
    is_ordered: bool = False
    keys: Mapping[int, QueueKey] = field(default_factory=dict)
    positions: Mapping[int, QueuePosition] = field(default_factory=dict)
    pool: int = 0
    is_long: bool = False

    @property
    def jobs(self) -> list[int]:
        """The jobs that have keys, in order."""
        return sorted(self.keys, key=self.keys.__getitem__)

    def key_of(self, job: Job) -> QueueKey:
        """Return the key of a queued job, or of a job in quarantine."""
        return self.key_of_row(job.pk, job.quarantine, job.submitted_at)

    def key_of_row(self, job: int, quarantine: str, submitted_at: datetime) -> QueueKey:
        """Return the same key as `key_of`, from columns.

        Jobs in quarantine and new arrivals come last.
        """
        is_last = bool(quarantine) or not self.is_long
        last = QueueKey(2, 0, job) if is_last else _by_arrival(job, submitted_at)
        return self.keys.get(job, last)


def read_queue_order(pool_id: int, *, as_of: int | None = None) -> QueueOrder:
    """Return the order of a pool's queue after round `as_of`, by default the last one.

    Three queries, one fewer while the round's bytes are cached. The order includes all tenants: a
    caller that serves one tenant may show other tenants' jobs only as positions. Reads at most
    `FIRST_JOBS` + 1 jobs, and twice as many of a longer queue: see `_long_order`.
    """
    with site_reading():
        rounds = Round.objects.filter(pool_id=pool_id).order_by("-number")
        last = (rounds.filter(number=as_of) if as_of is not None else rounds).first()
        queued = ready_jobs(pool_id)
        # In the order of the index of active jobs, so that the limit ends the scan.
        ordered = queued.order_by("submitted_at", "id")
        columns = ordered.values_list("id", "tenant_id", "submitted_at")
        rows = list(columns[: FIRST_JOBS + 1])
        if len(rows) > FIRST_JOBS:
            return _long_order(pool_id, last, as_of)
        order, text = _order(_StoredRound(last)) if last is not None else (None, FIRST)
    places = {job: place for place, job in enumerate(order or ())}
    keys = {
        job: QueueKey(0, places[job], job) if job in places else _by_arrival(job, at)
        for job, _, at in rows
    }
    tenants = {job: tenant for job, tenant, _ in rows}
    placed = sorted((job for job in keys if job in places), key=keys.__getitem__)
    number, is_ordered = last.number if last else None, order is not None
    return QueueOrder(number, _(text), is_ordered, keys, _positions(placed, tenants), pool_id)


def _long_order(pool_id: int, last: Round | None, as_of: int | None) -> QueueOrder:
    """Return the first jobs of a long queue, as they were stored when their round was sealed.

    The newest stored order is used, which may be a round or two old: reading and ordering a long
    round takes seconds. The round itself is read only if a page continues an order that is no
    longer stored.
    """
    sealing = RoundSealing.objects.filter(pool_id=pool_id).first()
    kept = sealing.queues if sealing else []
    if as_of is not None:
        kept = [one for one in kept if one["round"] == as_of]
    if kept:
        number, first, text = kept[0]["round"], kept[0]["jobs"], kept[0]["text"]
    elif last is None or as_of is None:
        number, first, text = None, None, FIRST if last is None else NOT_YET
    else:
        number, first, text = last.number, *_order(_StoredRound(last))
    places = {job: place for place, job in enumerate((first or ())[:FIRST_JOBS])}
    rows = ready_jobs(pool_id).filter(pk__in=list(places))
    tenants = dict(rows.values_list("id", "tenant_id"))
    placed = sorted(tenants, key=places.__getitem__)
    keys = {job: QueueKey(0, places[job], job) for job in placed}
    is_ordered, text = first is not None, _(text)
    if is_ordered:
        text = f"{text} {_(BEHIND).format(count=numeral(FIRST_JOBS))}"
    return QueueOrder(
        number, text, is_ordered, keys, _positions(placed, tenants), pool_id, is_long=True
    )


def first_of_queue(snapshot: Snapshot, decision: Decision) -> dict[str, Any] | None:
    """Return the stored form of the order after a round, or None if the queue is short.

    Return None also if the policy's order cannot be computed.
    """
    if sum(len(skip.jobs) for skip in decision.skips) <= FIRST_JOBS:
        return None
    try:
        order = queue_order(snapshot, decision.service)
    except (OptionError, LookupError):
        return None
    text = NO_QUEUE if order is None else POLICIES[snapshot.policy].order_text
    first = None if order is None else list(order[:FIRST_JOBS])
    return {"round": snapshot.number, "jobs": first, "text": text}


def order_after(pool_id: int, pool: str, after: QueueMark | None) -> QueueOrder:
    """Return the order of a pool's queue; a later page uses that of the round in `after`."""
    goes_on = after is not None and after.pool == pool
    return read_queue_order(pool_id, as_of=after.round if after is not None and goes_on else None)


def read_queue_orders(jobs: Iterable[Job]) -> dict[int, QueueOrder]:
    """Return the orders of the pools in which any of these jobs is queued, by pool."""
    pools = {job.pool_id for job in jobs if is_queued(job)}
    return {pool_id: read_queue_order(pool_id) for pool_id in sorted(pools)}


def is_queued(job: Job) -> bool:
    """Return whether a job is in its pool's queue; held jobs and jobs in quarantine are not."""
    return job.state == Job.State.PENDING and not job.quarantine and not job.is_held


def ready_jobs(pool_id: int) -> QuerySet[Job]:
    """Return the jobs of a pool's queue; see `is_queued`."""
    jobs = Job.objects.filter(pool_id=pool_id, state=Job.State.PENDING, quarantine="", holds=[])
    return jobs.exclude(reason_code=Reason.NOT_BEFORE)


def list_queue(
    order: QueueOrder, *, after: QueueKey | None, limit: int, among: QuerySet[Job] | None = None
) -> tuple[list[Job], bool]:
    """Return queued jobs in order, after a key, and whether there are more.

    A single query, and one or two more for a long queue. `among`: jobs of the pool, by default all
    queued jobs; jobs in quarantine come last.
    """
    chosen = [job for job in order.jobs if after is None or order.keys[job] > after]
    if among is None:
        among = ready_jobs(order.pool)
    else:
        mine = set(among.filter(pk__in=chosen).values_list("pk", flat=True))
        chosen = [job for job in chosen if job in mine]
    among = among.select_related("tenant")
    chosen = chosen[: limit + 1]
    first = among.in_bulk(chosen)
    page = [first[job] for job in chosen if job in first]
    if order.is_long and len(page) <= limit:
        page += _by_arrival_behind(order, after, limit + 1 - len(page), among)
    return page[:limit], len(page) > limit


def _by_arrival_behind(
    order: QueueOrder, after: QueueKey | None, limit: int, among: QuerySet[Job]
) -> list[Job]:
    """Return jobs after the first ones of a long queue; each query reads a page of an index."""
    free = among.filter(quarantine="").exclude(pk__in=list(order.keys))
    if after is not None and after.unplaced == 1:
        at = from_us(after.place)
        free = free.filter(submitted_at__gte=at).exclude(submitted_at=at, pk__lte=after.job)
    page: list[Job] = []
    if after is None or after.unplaced < 2:
        page = list(free.order_by("submitted_at", "id")[:limit])
    if len(page) < limit:
        kept_back = among.exclude(quarantine="").order_by("id")
        if after is not None and after.unplaced == 2:
            kept_back = kept_back.filter(pk__gt=after.job)
        page += kept_back[: limit - len(page)]
    return page


def _by_arrival(job: int, submitted_at: datetime) -> QueueKey:
    return QueueKey(1, to_us(submitted_at), job)


def _positions(placed: list[int], tenants: Mapping[int, int]) -> dict[int, QueuePosition]:
    of_tenant: dict[int, int] = {}
    positions: dict[int, QueuePosition] = {}
    for place, job in enumerate(placed, start=1):
        tenant = tenants[job]
        of_tenant[tenant] = of_tenant.get(tenant, 0) + 1
        positions[job] = QueuePosition(place, of_tenant[tenant])
    return positions


class _StoredRound:
    """A round as a cache key: equal if the bytes are equal."""

    def __init__(self, round_: Round) -> None:
        self.round = round_
        self._key = (round_.snapshot_sha256, round_.decision_sha256)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _StoredRound) and self._key == other._key


@lru_cache(maxsize=8)
def _order(stored: _StoredRound) -> tuple[tuple[int, ...] | None, str]:
    """Return the order after a round and its description, or None and why there is no order.

    It is cached because every open job page requests the same round.
    """
    try:
        snapshot, decision = round_values(stored.round)
        order = queue_order(snapshot, decision.service)
    except (ReplayError, OptionError, LookupError):
        return None, UNREADABLE
    return order, NO_QUEUE if order is None else POLICIES[snapshot.policy].order_text
