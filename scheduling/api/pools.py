"""Pools and their queues, as the caller may see them, and their settings for operators."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, ClassVar
from uuid import UUID

from rest_framework import serializers as s
from rest_framework.request import Request
from rest_framework.response import Response

from scheduling.api.base import OperatePoolView, SchedulingView
from scheduling.api.policy_options import PolicyOptions
from scheduling.engine.clock import pool_time, read_clock
from scheduling.models import Job, Pool
from scheduling.requests.pools import PoolChangeRequest, ScaleRequest
from scheduling.selectors.jobs.preemptions import PreemptionRow, list_preemptions
from scheduling.selectors.jobs.queue_order import (
    QueueKey,
    QueuePosition,
    list_queue,
    read_queue_order,
)
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.pools.nodes import windows_near
from scheduling.selectors.pools.now import pool_overview
from scheduling.selectors.pools.settings import PoolSettings, PriceTerms, pool_settings
from scheduling.selectors.sharing.quota_promises import QuotaPromiseRow, pool_promise, promise_row
from scheduling.selectors.sharing.trades import TradeRow, list_trades
from scheduling.selectors.visibility import Visibility, VisibleTenant, read_visibility
from scheduling.services.pools import patch_pool, set_pool_clock
from tenants.answers import Answer, about, answer_of, described_as, one_of, plain
from tenants.api.base import Who
from tenants.api.operate import IF_MATCH, answer, etag_of, request_of
from tenants.api.problems import not_there
from tenants.api.request_schemas import request_serializer
from tenants.api.resources import PAGE, Listed, Page, Shown, described
from tenants.input.errors import invalid
from tenants.input.requests import request_fields
from tenants.requests import ReasonRequest
from tenants.scopes import site_scope


class PoolRow(Answer, frozen=True, rename={"number": "round", "at": "round_at"}):
    """A pool. `now` and `round_at` are pool time."""

    name: str
    policy: str
    book: str
    round_s: int
    lease_s: int
    nodes: int
    gpus: int
    now: datetime
    scale: int
    paused: bool
    number: int | None
    at: datetime | None
    quota_promise: QuotaPromiseRow | None


class NodeRow(Answer, frozen=True, rename={"phase": "state"}):
    """A node."""

    name: str
    gpus: int
    held: int
    phase: str


class TypeRow(Answer, frozen=True, rename={"name": "gpu_type"}):
    """All GPUs of one type; used + idle + blocked = gpus."""

    name: str
    gpus: int
    used: int
    own: int
    borrowed: int
    idle: int
    blocked: int
    nodes: tuple[NodeRow, ...]


class PoolWhole(PoolRow, frozen=True, rename={"number": "round", "at": "round_at"}):
    """A pool with its nodes."""

    types: tuple[TypeRow, ...]


def _pool(facts: PoolFacts) -> dict[str, Any]:
    shown: dict[str, Any] = plain(
        answer_of(
            PoolRow,
            facts,
            now=pool_time(facts.clock, facts.wall),
            scale=facts.clock.scale,
            paused=facts.clock.paused,
            quota_promise=promise_row(pool_promise(facts)),
        )
    )
    return shown


class PoolList(Listed, SchedulingView):
    """List your pools with their clocks and last rounds."""

    address = "pools"
    operation = "pool_list"
    who = Who.ANYBODY_SIGNED_IN
    row = PoolRow
    about = "All pools."

    def page(self) -> Page:
        return Page(map(_pool, self.pools()))


class PoolShow(Shown, SchedulingView):
    """Show a pool: its nodes, and the used, own, borrowed and idle GPUs by type."""

    address = "pools/<slug:name>"
    operation = "pool_show"
    who = Who.POOL
    answer = PoolWhole

    def show(self, name: str) -> dict[str, Any]:
        facts = self.pool(name)
        with site_scope():
            windows = windows_near(facts, pool_time(facts.clock, facts.wall))
            overview = pool_overview(
                facts.id,
                read_visibility(facts.id, self.access),
                away={row.node_id for row in windows},
            )
        types = [
            answer_of(TypeRow, row, nodes=tuple(answer_of(NodeRow, node) for node in row.nodes))
            for row in overview.types
        ]
        return {**_pool(facts), "types": plain(types)}


class QueueRow(Answer, frozen=True, kw_only=True):
    """A waiting job; id, name and reason are null for jobs that you may not see."""

    position: Annotated[
        int | None, about("From 1; null: not ordered yet, or the policy has no order.")
    ]
    tenant_position: Annotated[int | None, about("Among your tenant's jobs.")]
    tenant: VisibleTenant | None
    id: UUID | None
    name: str | None
    reason_code: str | None
    gpus: int
    submitted_at: datetime


class PoolQueue(Listed, SchedulingView):
    """List queued jobs in the policy's order; other tenants' jobs if the pool discloses them."""

    address = "pools/<slug:name>/queue"
    operation = "pool_queue"
    who = Who.POOL
    row = QueueRow
    about = "A page of a queue: the order of round `round`, by the policy's rule `order`."
    beside: ClassVar = {"round": s.IntegerField(allow_null=True), "order": s.CharField()}
    parameters = PAGE
    shows = ("Job.name", "Job.uid")

    def page(self, name: str) -> Page:
        facts, limit = self.pool(name), self.limit
        # Cursors of an old format, which contained only the arrival, are invalid.
        key = self.after("queue-2", facts.id, parts=1 + len(QueueKey._fields))
        after = QueueKey(*key[1:]) if key else None
        with site_scope():
            order = read_queue_order(facts.id, as_of=key[0] if key else None)
            jobs, more = list_queue(order, after=after, limit=limit)
            visibility = read_visibility(facts.id, self.access)
        shown = [_queued(order.positions.get(job.pk), job, visibility) for job in jobs]
        following = (order.round or 0, *order.key_of(jobs[-1])) if more else None
        return Page(shown, following, head={"round": order.round, "order": order.text})


def _queued(place: QueuePosition | None, job: Job, visibility: Visibility) -> QueueRow:
    known = visibility.jobs_of(job.tenant_id)
    return QueueRow(
        position=place.pool if place else None,
        tenant_position=place.tenant if place and known else None,
        tenant=visibility.of(job.tenant_id),
        id=job.uid if known else None,
        name=job.name if known else None,
        reason_code=job.reason_code if known else None,
        gpus=job.gpus,
        submitted_at=job.submitted_at,
    )


class PoolEvents(Listed, SchedulingView):
    """Base of lists of a pool's events; `kind` makes the cursor of one list invalid in another."""

    who = Who.POOL
    parameters = PAGE
    kind: ClassVar[str]
    read: ClassVar[Callable[..., tuple[list[Any], bool]]]

    def page(self, name: str) -> Page:
        facts, limit = self.pool(name), self.limit
        before = self.before(self.kind, facts.id)
        with site_scope():
            visibility = read_visibility(facts.id, self.access)
            rows, more = type(self).read(facts.id, visibility, limit=limit, before=before)
        return Page(rows, [rows[-1].number] if more else None)


class PoolPreemptions(PoolEvents):
    """List leases that ended before their expiry, with rule and beneficiary, newest first."""

    address = "pools/<slug:name>/preemptions"
    operation = "pool_preemptions"
    row = PreemptionRow
    about = "A page of leases that ended before their expiry, newest first."
    shows = ("Job.name", "Job.uid")
    kind, read = "preemptions", staticmethod(list_preemptions)


class PoolTrades(PoolEvents):
    """List trades of quota, made and undone, with their receipts, newest first."""

    address = "pools/<slug:name>/trades"
    operation = "pool_trades"
    row = TradeRow
    about = "A page of trades, newest first."
    kind, read = "trades", staticmethod(list_trades)


class PriceTermsWanted(s.Serializer[object]):
    """The fields of a price to change."""

    base = s.RegexField(r"^[0-9]{1,12}(\.[0-9]{1,6})?$", required=False)
    theta = s.RegexField(r"^[0-9]{1,3}(\.[0-9]{1,3})?$", required=False)
    surcharge_cap = s.RegexField(r"^[0-9]{1,3}(\.[0-9]{1,3})?$", required=False)
    surcharge_step = s.RegexField(r"^[0-9]{1,3}(\.[0-9])?$", required=False)


class PoolSet(Answer, frozen=True):
    """All settings of a pool that an operator may change. `now` is pool time."""

    name: str
    policy: str
    options: Annotated[dict[str, Any], described_as(PolicyOptions)]
    visibility: Annotated[str, one_of(*Pool.Visibility.values)]
    round_s: int
    lease_s: int
    least_lease_s: int
    most_lease_s: int
    grace_s: int
    outage_grace_s: int
    profiling_s: int
    idle_warn_s: int
    idle_return_s: int
    prices: dict[str, PriceTerms]
    book: str
    executor: str
    executor_options: Annotated[dict[str, Any], about("Options of the executor, as saved.")]
    scale: int
    paused: bool
    now: datetime


PoolChange = request_serializer(
    PoolChangeRequest,
    options=PolicyOptions(required=False),
    executor_options=s.DictField(
        child=s.JSONField(),
        required=False,
        help_text="All options of the executor; they replace the saved ones. Running leases keep"
        " their options.",
    ),
    prices=s.DictField(child=PriceTermsWanted(), required=False),
)


class OperatePool(Shown, OperatePoolView):
    """Show the settings of a pool for operators; the ETag covers all of them."""

    address = "operate/pools/<slug:name>"
    operation = "operate_pool_show"
    answer = PoolSet

    def show(self, name: str) -> Response:
        with site_scope():
            return _settings_answer(_settings(name))

    @described("operate_pool_change", PoolChange, PoolSet, 200, IF_MATCH)
    def patch(self, request: Request, name: str) -> Response:
        """Change some settings, all or none; the next round uses them."""
        wanted = _pool_change(request.data)
        with site_scope():
            present = _settings(name, lock=True)
            self.require_match(_tag(_shown(present)))
            patch_pool(actor=self.actor, settings=present, request=wanted)
            return _settings_answer(_settings(name))


class PoolClockView(OperatePoolView):
    """Base of changes of a pool's clock; pool time never jumps."""

    paused: ClassVar[bool | None] = None
    body: ClassVar[type[ReasonRequest]] = ReasonRequest

    def change(self, request: Request, name: str) -> Response:
        """Change the clock as the URL and the body request."""
        wanted = request_of(self.body, request.data)
        scale = wanted.scale if isinstance(wanted, ScaleRequest) else None
        with site_scope():
            present = _settings(name, lock=True)
            self.require_match(_tag(_shown(present)))
            set_pool_clock(
                actor=self.actor,
                pool_id=present.pool.pk,
                paused=self.paused,
                scale=scale,
                reason=wanted.reason,
            )
            return _settings_answer(_settings(name))


class PoolPause(PoolClockView):
    address = "operate/pools/<slug:name>/pause"
    paused: ClassVar[bool | None] = True

    @described("operate_pool_pause", ReasonRequest, PoolSet, 200, IF_MATCH)
    def post(self, request: Request, name: str) -> Response:
        """Pause a pool's clock: no round is decided, no lease ends."""
        return self.change(request, name)


class PoolResume(PoolClockView):
    address = "operate/pools/<slug:name>/resume"
    paused: ClassVar[bool | None] = False

    @described("operate_pool_resume", ReasonRequest, PoolSet, 200, IF_MATCH)
    def post(self, request: Request, name: str) -> Response:
        """Resume a pool's clock from where it was paused."""
        return self.change(request, name)


class PoolScale(PoolClockView):
    address = "operate/pools/<slug:name>/scale"
    body: ClassVar[type[ReasonRequest]] = ScaleRequest

    @described("operate_pool_scale", ScaleRequest, PoolSet, 200, IF_MATCH)
    def post(self, request: Request, name: str) -> Response:
        """Set the seconds of pool time per second of wall time."""
        return self.change(request, name)


def _settings(name: str, *, lock: bool = False) -> PoolSettings:
    settings = pool_settings(name, lock=lock)
    if settings is None:
        raise not_there()
    return settings


def _shown(settings: PoolSettings) -> dict[str, Any]:
    prices = {name: answer_of(PriceTerms, row) for name, row in settings.prices.items()}
    shown: dict[str, Any] = plain(
        answer_of(
            PoolSet,
            settings.pool,
            options=settings.options,
            prices=prices,
            scale=settings.clock.scale,
            paused=settings.clock.paused,
            now=read_clock(settings.pool.pk).pool_at,
        )
    )
    return shown


def _tag(shown: dict[str, Any]) -> str:
    return etag_of({name: value for name, value in shown.items() if name != "now"})


def _settings_answer(settings: PoolSettings) -> Response:
    shown = _shown(settings)
    return answer(shown, _tag(shown))


def _pool_change(data: Any) -> PoolChangeRequest:
    wanted = request_of(PoolChangeRequest, data)
    if not set(data) - {"reason"}:
        fields = ", ".join(request_fields(PoolChangeRequest))
        raise invalid("", "changes no field", f"Fields: {fields}.")
    return wanted
