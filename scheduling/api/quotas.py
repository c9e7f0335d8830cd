"""Quotas: those of the caller's tenants; an operator's edit of one, and the estimate of many."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, inline_serializer
from rest_framework import serializers as s
from rest_framework.request import Request
from rest_framework.response import Response

from scheduling.api import schemas
from scheduling.api.base import OperatePoolView, SchedulingView
from scheduling.engine.clock import read_clock
from scheduling.engine.snapshots import next_number
from scheduling.models import GpuType, Pool
from scheduling.selectors.pools.capacity import gpus_by_type
from scheduling.selectors.sharing.quotas import QuotaRow, list_quotas
from scheduling.services.quota_impact import Impact, quota_impact
from scheduling.services.round_impact import Standing
from tenants.answers import Answer, answer_of, plain
from tenants.api.answer_schemas import answer_serializer
from tenants.api.operate import IF_MATCH, OperateView, answer, page, request_of
from tenants.api.problems import bad_field, not_there
from tenants.api.request_schemas import request_serializer
from tenants.api.resources import PAGE, Listed, Page
from tenants.api.times import time_text
from tenants.input.errors import FieldError, FieldErrors, InvalidInputError
from tenants.models import Tenant
from tenants.periods import Key, Period
from tenants.requests import (
    DRAFTS_MAX,
    MODES,
    QuotaDraft,
    QuotaPreviewRequest,
    QuotaRequest,
)
from tenants.scopes import site_scope
from tenants.selectors.quota_records import dilution_text
from tenants.services.quotas import (
    QuotaEdit,
    basis_of,
    quota_periods,
    save_quotas,
)

_EDIT = re.compile(r"quotas\[([0-9]+)\]\.(\w+)")

POOL = OpenApiParameter(
    "pool", OpenApiTypes.STR, OpenApiParameter.QUERY, required=True, description="A pool's name."
)


# Not classes, for `from` is no name of Python's.
QuotaSet = inline_serializer(
    "OperateQuota",
    fields={
        "pool": s.CharField(),
        "tenant": s.CharField(),
        "gpu_type": s.CharField(),
        "gpus": s.IntegerField(),
        "mode": s.ChoiceField(list(MODES)),
        "borrow_limit": s.IntegerField(allow_null=True),
        "lend_limit": s.IntegerField(allow_null=True),
        "from": s.DateTimeField(),
        "until": s.DateTimeField(allow_null=True),
    },
)
QuotasSet = inline_serializer(
    "OperateQuotaPage",
    fields={
        "results": s.ListField(child=type(QuotaSet)()),
        "next": s.CharField(allow_null=True),
    },
)


def _warnings_field() -> s.ListField:
    about = "Quotas above the pool's GPUs, and whom they dilute by how much."
    return s.ListField(child=s.CharField(), help_text=about)


QuotasSaved = inline_serializer(
    "OperateQuotaSaved",
    fields={
        "results": s.ListField(child=type(QuotaSet)()),
        "next": s.CharField(allow_null=True),
        "warnings": _warnings_field(),
    },
)
Drafts = request_serializer(
    QuotaPreviewRequest,
    quotas=s.ListField(child=request_serializer(QuotaDraft)(), min_length=1, max_length=DRAFTS_MAX),
)


class QuotaImpactRow(Answer, frozen=True):
    """One tenant and GPU type, with the present quotas and with the drafted ones."""

    tenant: str
    gpu_type: str
    before: Standing
    after: Standing


class QuotaImpact(s.Serializer[object]):
    """An estimate of the next round, not a promise; `error` where there is none."""

    pool = s.CharField()
    round = s.IntegerField()
    at = s.DateTimeField()
    waiting_before = s.IntegerField()
    waiting_after = s.IntegerField()
    results = answer_serializer(QuotaImpactRow)(many=True)
    warnings = _warnings_field()
    error = s.CharField(allow_blank=True)


@dataclass(frozen=True, slots=True)
class QuotaNames:
    """Tenants and GPU types by id."""

    tenants: Mapping[int, str]
    types: Mapping[int, str]

    @classmethod
    def read(cls) -> QuotaNames:
        """Read them; there are few."""
        tenants = dict(Tenant.objects.values_list("id", "slug"))
        return cls(tenants, dict(GpuType.objects.values_list("id", "name")))


class QuotaList(Listed, SchedulingView):
    """List quotas with their periods, newest first."""

    address = "quotas"
    operation = "quota_list"
    row = QuotaRow
    about = "A page of quotas."
    parameters = (schemas.TENANT, schemas.POOL, *PAGE)
    shows = ("Tenant.slug",)

    def page(self) -> Page:
        tenants, limit, before = self.asked_tenants(), self.limit, self.before("quotas")
        with site_scope():
            rows, more = list_quotas(tenants, pool=self.param("pool"), before=before, limit=limit)
        return Page(rows, [more] if more else None)


class OperateQuotaList(OperatePoolView):
    """Quotas of a pool, from now on."""

    query: ClassVar[tuple[str, ...]] = ("pool",)

    @extend_schema(operation_id="operate_quota_list", responses={200: QuotasSet}, parameters=[POOL])
    def get(self, request: Request) -> Response:
        """List the periods that hold now or later; the ETag is of all quotas of the pool."""
        name = request.query_params.get("pool", "")
        if not name:
            raise bad_field("pool", "is required")
        with site_scope():
            pool = self.named(name)
            return _periods_answer(pool, read_clock(pool.pk).pool_at)


class OperateQuota(OperatePoolView):
    """A tenant's quota of a GPU type in a pool."""

    @extend_schema(operation_id="operate_quota_show", responses={200: QuotasSet})
    def get(self, request: Request, name: str, slug: str, gpu_type: str) -> Response:  # noqa: ARG002 - DRF's
        """Show the periods of one quota; the ETag is of all quotas of the pool."""
        with site_scope():
            pool = self.named(name)
            return _periods_answer(pool, read_clock(pool.pk).pool_at, _key(pool, slug, gpu_type))

    @extend_schema(
        operation_id="operate_quota_set",
        request=request_serializer(QuotaRequest),
        responses={200: QuotasSaved},
        parameters=[IF_MATCH],
    )
    def put(self, request: Request, name: str, slug: str, gpu_type: str) -> Response:
        """Let a quota hold from an instant on (now, unless told); `gpus` null ends it."""
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
            said = _periods_answer(pool, now, key)
            said.data["warnings"] = _warnings(record.after.get("dilutes", ()) if record else ())
            return said


class QuotaPreview(OperateView):
    """What drafted quotas would do."""

    preconditions: ClassVar[tuple[str, ...]] = ()

    @extend_schema(
        operation_id="operate_quota_preview", request=Drafts, responses={200: QuotaImpact}
    )
    def post(self, request: Request) -> Response:
        """Decide the next round with the present quotas and with these; nothing is written."""
        wanted = request_of(QuotaPreviewRequest, request.data)
        with site_scope():
            pool = Pool.objects.filter(name=wanted.pool).first()
            if pool is None:
                raise bad_field("pool", "is not a pool")
            names, now = QuotaNames.read(), read_clock(pool.pk)
            edits = _edits(wanted.quotas, names)
        drafts, since = wanted.quotas, wanted.since or now.pool_at
        with _named(lambda index: f"quotas.{drafts[index].tenant}.{drafts[index].gpu_type}."):
            impact = quota_impact(pool_id=pool.pk, edits=edits, since=since, now=now)
        return Response(_impact(impact, pool, names))


@contextmanager
def _named(place: Callable[[int], str]) -> Iterator[None]:
    """Name the service's fields as these addresses do; `place`: of the edit of an index."""
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
    """The quota that an address names: of a tenant, and of a type that the pool has or had."""
    tenant = Tenant.objects.filter(slug=slug).first()
    kinds = GpuType.objects.filter(name=gpu_type)
    kind = kinds.filter(node__pool=pool).first() or kinds.filter(quota__pool=pool).first()
    if tenant is None or kind is None:
        raise not_there()
    return tenant.pk, kind.pk


def _edits(drafts: Sequence[QuotaDraft], names: QuotaNames) -> list[QuotaEdit]:
    tenants = {slug: key for key, slug in names.tenants.items()}
    types = {name: key for key, name in names.types.items()}
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


def _periods_answer(pool: Pool, now: datetime, only: Key | None = None) -> Response:
    names = QuotaNames.read()
    rows = [
        _row(pool, key, period, names)
        for key, periods in quota_periods(pool.pk, now).items()
        if only in (None, key)
        for period in periods
    ]
    rows.sort(key=lambda row: (row["gpu_type"], row["tenant"], row["from"]))
    return answer(page(rows), f'"{basis_of(pool.pk, now)}"')


def _row(pool: Pool, key: Key, period: Period, names: QuotaNames) -> dict[str, Any]:
    terms = period.terms
    return {
        "pool": pool.name,
        "tenant": names.tenants[key[0]],
        "gpu_type": names.types[key[1]],
        "gpus": terms.gpus,
        "mode": terms.mode,
        "borrow_limit": terms.borrow_limit,
        "lend_limit": terms.lend_limit,
        "from": time_text(period.since),
        "until": time_text(period.until),
    }


def _warnings(dilutes: Iterable[Mapping[str, Any]]) -> list[str]:
    return [dilution_text(row) for row in dilutes]


def _impact(impact: Impact, pool: Pool, names: QuotaNames) -> dict[str, Any]:
    return {
        "pool": pool.name,
        "round": impact.number,
        "at": time_text(impact.at),
        "waiting_before": impact.waiting.before,
        "waiting_after": impact.waiting.after,
        "results": [
            plain(answer_of(QuotaImpactRow, row, tenant=names.tenants.get(row.tenant, "")))
            for row in impact.rows
        ],
        "warnings": impact.warnings,
        "error": impact.error,
    }
