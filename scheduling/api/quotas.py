"""Quotas: list the caller's; for operators, edit one, and preview several."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Annotated, ClassVar, TypeAlias

from rest_framework import serializers as s
from rest_framework.request import Request
from rest_framework.response import Response

from scheduling.api import schemas
from scheduling.api.base import OperatePoolView, SchedulingView
from scheduling.engine.clock import pool_time, read_clock
from scheduling.engine.snapshots import next_number
from scheduling.models import GpuType, Pool
from scheduling.selectors.pools.capacity import gpus_by_type
from scheduling.selectors.sharing.quota_use import QuotaUseRow, list_quota_use
from scheduling.selectors.sharing.quotas import QuotaRow, list_quotas
from scheduling.services.quota_impact import Impact, quota_impact
from scheduling.services.round_impact import ImpactRow
from tenants.answers import Answer, about, answer_of, one_of, plain
from tenants.api.base import Who
from tenants.api.operate import IF_MATCH, OperateView, answer, request_of
from tenants.api.problems import bad_field, not_there
from tenants.api.request_schemas import request_serializer
from tenants.api.resources import PAGE, Listed, Page, Shown, described, query
from tenants.input.errors import FieldError, FieldErrors, InvalidInputError
from tenants.models import Tenant
from tenants.periods import Key
from tenants.requests import (
    DRAFTS_MAX,
    MODES,
    QuotaDraft,
    QuotaPreviewRequest,
    QuotaRequest,
)
from tenants.scopes import site_scope, tenants_scope
from tenants.selectors.quota_records import dilution_text
from tenants.services.quotas import (
    QuotaEdit,
    basis_of,
    quota_periods,
    save_quotas,
)

_EDIT = re.compile(r"quotas\[([0-9]+)\]\.(\w+)")

POOL = query("pool", "A pool's name.", required=True)
Warnings = Annotated[
    tuple[str, ...],
    about("Quotas above the pool's GPUs, and by how much each tenant's quota shrinks."),
]


class OperateQuotaRow(Answer, frozen=True, kw_only=True, rename={"since": "from"}):
    pool: str
    tenant: str
    gpu_type: str
    gpus: int
    mode: Annotated[str, one_of(*MODES)]
    borrow_limit: int | None
    lend_limit: int | None
    since: datetime
    until: datetime | None


class OperateQuotaPage(Answer, frozen=True):
    results: tuple[OperateQuotaRow, ...]
    next: str | None = None


class OperateQuotaSaved(OperateQuotaPage, frozen=True, kw_only=True):
    warnings: Warnings


Drafts = request_serializer(
    QuotaPreviewRequest,
    quotas=s.ListField(child=request_serializer(QuotaDraft)(), min_length=1, max_length=DRAFTS_MAX),
)


class QuotaImpactRow(ImpactRow[str], frozen=True):
    """The forecast for a tenant and GPU type, with the present and with the drafted quotas."""


class QuotaImpact(Answer, frozen=True):
    """An estimate of the next round, not a promise; `error` explains why there is no estimate."""

    pool: str
    round: int
    at: datetime
    waiting_before: int
    waiting_after: int
    results: tuple[QuotaImpactRow, ...]
    warnings: Warnings
    error: str


Names: TypeAlias = dict[int, str]


def _names() -> tuple[Names, Names]:
    """Return the names of all tenants and of all GPU types, by id; there are few."""
    tenants = dict(Tenant.objects.values_list("id", "slug"))
    return tenants, dict(GpuType.objects.values_list("id", "name"))


class QuotaList(Listed, SchedulingView):
    """List quotas with their periods, newest first."""

    address = "quotas"
    operation = "quota_list"
    who = Who.ANYBODY_SIGNED_IN
    row = QuotaRow
    about = "A page of quotas."
    parameters = (schemas.TENANT, schemas.POOL, *PAGE)
    shows = ("Tenant.slug",)

    def page(self) -> Page:
        tenants, limit, before = self.asked_tenants(), self.limit, self.before("quotas")
        with site_scope():
            rows, more = list_quotas(tenants, pool=self.param("pool"), before=before, limit=limit)
        return Page(rows, [more] if more else None)


class QuotaUseList(Listed, SchedulingView):
    """List the GPUs that your tenants hold now, within their quotas and above them."""

    address = "quotas/use"
    operation = "quota_use_list"
    who = Who.ANYBODY_SIGNED_IN
    row = QuotaUseRow
    about = "All quotas in force, with their use."
    parameters = (schemas.TENANT, schemas.POOL)
    shows = ("Tenant.slug",)

    def page(self) -> Page:
        name, tenants = self.param("pool"), self.asked_tenants()
        pools = [self.pool(name)] if name else self.pools()
        times = {facts.id: pool_time(facts.clock, facts.wall) for facts in pools}
        with tenants_scope(tenants):
            return Page(list_quota_use(tenants, times))


class OperateQuotaList(Shown, OperatePoolView):
    """List present and future quota periods; the ETag covers all quotas of the pool."""

    address = "operate/quotas"
    operation = "operate_quota_list"
    answer = OperateQuotaPage
    parameters = (POOL,)
    shows = ("Tenant.slug",)

    def show(self) -> Response:
        name = self.param("pool")
        if not name:
            raise bad_field("pool", "is required")
        with site_scope():
            pool = self.named(name)
            return _answer(pool, read_clock(pool.pk).pool_at)


class OperateQuota(Shown, OperatePoolView):
    """Show the periods of one quota; the ETag covers all quotas of the pool."""

    address = "operate/quotas/<slug:name>/<slug:slug>/<slug:gpu_type>"
    operation = "operate_quota_show"
    answer = OperateQuotaPage
    shows = ("Tenant.slug",)

    def show(self, name: str, slug: str, gpu_type: str) -> Response:
        with site_scope():
            pool = self.named(name)
            return _answer(pool, read_clock(pool.pk).pool_at, _key(pool, slug, gpu_type))

    @described("operate_quota_set", QuotaRequest, OperateQuotaSaved, 200, IF_MATCH)
    def put(self, request: Request, name: str, slug: str, gpu_type: str) -> Response:
        """Set a quota from a time on (default: now); `gpus` null ends it."""
        wanted = request_of(QuotaRequest, request.data)
        with self.edited(name) as (pool, now):
            key = _key(pool, slug, gpu_type)
            basis = basis_of(pool.pk, now)
            self.require_match(f'"{basis}"')
            with _named(lambda _: ""):
                record = save_quotas(
                    actor=self.actor,
                    pool_id=pool.pk,
                    pool_name=pool.name,
                    book=pool.book,
                    edits=[QuotaEdit(*key, wanted.terms, wanted.until)],
                    since=wanted.since or now,
                    now=now,
                    basis=basis,
                    next_round=next_number(pool.pk),
                    capacity=gpus_by_type(pool.pk),
                    reason=wanted.reason,
                )
            rows = _periods(pool, now, key).results
            dilutes = record.after.get("dilutes", ()) if record else ()
            saved = OperateQuotaSaved(rows, warnings=tuple(map(dilution_text, dilutes)))
            return answer(plain(saved), _tag(pool, now))


class QuotaPreview(OperateView):
    address = "operate/quotas/preview"
    preconditions: ClassVar[tuple[str, ...]] = ()

    @described("operate_quota_preview", Drafts, QuotaImpact)
    def post(self, request: Request) -> Response:
        """Compute the next round with the present and the drafted quotas; nothing is stored."""
        wanted = request_of(QuotaPreviewRequest, request.data)
        with site_scope():
            pool = Pool.objects.filter(name=wanted.pool).first()
            if pool is None:
                raise bad_field("pool", "is not a pool")
            (tenants, types), now = _names(), read_clock(pool.pk)
            edits = _edits(wanted.quotas, tenants, types)
        drafts, since = wanted.quotas, wanted.since or now.pool_at
        with _named(lambda index: f"quotas.{drafts[index].tenant}.{drafts[index].gpu_type}."):
            impact = quota_impact(pool_id=pool.pk, edits=edits, since=since, now=now)
        return Response(plain(_impact(impact, pool, tenants)))


@contextmanager
def _named(place: Callable[[int], str]) -> Iterator[None]:
    """Rename the fields of service errors to the request's fields, by the index of each edit."""
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError([_named_error(one, place) for one in error.errors]) from error


def _named_error(error: FieldError, place: Callable[[int], str]) -> FieldError:
    of_edit = _EDIT.fullmatch(error.field)
    if of_edit:
        return replace(error, field=f"{place(int(of_edit[1]))}{of_edit[2]}")
    return replace(error, field="from") if error.field == "since" else error


def _key(pool: Pool, slug: str, gpu_type: str) -> Key:
    """Return the quota that a URL names: a tenant, and a GPU type that the pool has or had."""
    tenant = Tenant.objects.filter(slug=slug).first()
    kinds = GpuType.objects.filter(name=gpu_type)
    kind = kinds.filter(node__pool=pool).first() or kinds.filter(quota__pool=pool).first()
    if tenant is None or kind is None:
        raise not_there()
    return tenant.pk, kind.pk


def _edits(drafts: Sequence[QuotaDraft], slugs: Names, names: Names) -> list[QuotaEdit]:
    tenants = {slug: key for key, slug in slugs.items()}
    types = {name: key for key, name in names.items()}
    errors, edits = FieldErrors(), []
    for index, draft in enumerate(drafts):
        if draft.tenant not in tenants:
            errors.add(f"quotas[{index}].tenant", "is not a tenant")
        elif draft.gpu_type not in types:
            errors.add(f"quotas[{index}].gpu_type", "is not a GPU type")
        else:
            key = tenants[draft.tenant], types[draft.gpu_type]
            edits.append(QuotaEdit(*key, draft.terms, draft.until))
    errors.raise_any()
    return edits


def _tag(pool: Pool, now: datetime) -> str:
    return f'"{basis_of(pool.pk, now)}"'


def _answer(pool: Pool, now: datetime, only: Key | None = None) -> Response:
    return answer(plain(_periods(pool, now, only)), _tag(pool, now))


def _periods(pool: Pool, now: datetime, only: Key | None) -> OperateQuotaPage:
    tenants, types = _names()
    rows = [
        answer_of(
            OperateQuotaRow,
            period.terms,
            pool=pool.name,
            tenant=tenants[key[0]],
            gpu_type=types[key[1]],
            since=period.since,
            until=period.until,
        )
        for key, periods in quota_periods(pool.pk, now).items()
        if only in (None, key)
        for period in periods
    ]
    return OperateQuotaPage(
        tuple(sorted(rows, key=lambda row: (row.gpu_type, row.tenant, row.since)))
    )


def _impact(impact: Impact, pool: Pool, tenants: Names) -> QuotaImpact:
    rows = (
        answer_of(QuotaImpactRow, row, tenant=tenants.get(row.tenant, "")) for row in impact.rows
    )
    return QuotaImpact(
        pool.name,
        impact.number,
        impact.at,
        impact.before.waiting,
        impact.after.waiting,
        tuple(rows),
        tuple(impact.warnings),
        impact.error,
    )
