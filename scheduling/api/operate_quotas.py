"""An operator's quotas: the periods of a pool, the edit of one quota, and the estimate of many."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, inline_serializer
from rest_framework import serializers as s
from rest_framework.request import Request
from rest_framework.response import Response

from evenshare_core.domain.entitlements import Mode
from scheduling.api.operate_base import PoolView
from scheduling.api.operate_read import body_of
from scheduling.engine.clock import read_clock
from scheduling.engine.snapshots import next_number
from scheduling.models import GpuType, Pool
from scheduling.services.quota_impact import Impact, Standing, quota_impact
from tenants.api.operate import IF_MATCH, OperateView, answer, page
from tenants.api.problems import bad_field, not_there
from tenants.api.times import time_text
from tenants.input.errors import FieldError, FieldErrors, InvalidInputError
from tenants.input.readers import instant, number, slug, words
from tenants.models import Tenant
from tenants.periods import Period, QuotaTerms
from tenants.scopes import site_scope
from tenants.services.quotas import (
    GPUS_MAX,
    Key,
    QuotaEdit,
    basis_of,
    quota_periods,
    save_quotas,
)

TERMS = ("gpus", "mode", "borrow_limit", "lend_limit", "until")
EDITS_MAX = 1000
MODES = [mode.value for mode in Mode]
_EDIT = re.compile(r"quotas\[([0-9]+)\]\.(\w+)")

POOL = OpenApiParameter(
    "pool", OpenApiTypes.STR, OpenApiParameter.QUERY, required=True, description="A pool's name."
)


def _count(least: int = 0) -> s.IntegerField:
    return s.IntegerField(required=False, allow_null=True, min_value=least, max_value=GPUS_MAX)


def _at(**more: Any) -> s.DateTimeField:
    return s.DateTimeField(required=False, allow_null=True, **more)


def _terms() -> dict[str, s.Field[Any, Any, Any, Any]]:
    return {
        "gpus": s.IntegerField(allow_null=True, min_value=0, max_value=GPUS_MAX),
        "mode": s.ChoiceField(MODES, required=False),
        "borrow_limit": _count(),
        "lend_limit": _count(),
        "until": _at(),
    }


# Not classes, for `from` is no name of Python's.
QuotaWanted = inline_serializer(
    "OperateQuotaWanted",
    fields={**_terms(), "from": _at(), "reason": s.CharField(required=False, allow_blank=True)},
)
QuotaSet = inline_serializer(
    "OperateQuota",
    fields={
        "pool": s.CharField(),
        "tenant": s.CharField(),
        "gpu_type": s.CharField(),
        "gpus": s.IntegerField(),
        "mode": s.ChoiceField(MODES),
        "borrow_limit": s.IntegerField(allow_null=True),
        "lend_limit": s.IntegerField(allow_null=True),
        "from": s.DateTimeField(),
        "until": s.DateTimeField(allow_null=True),
    },
)
QuotasSet = inline_serializer(
    "OperateQuotaPage",
    fields={
        "results": s.ListField(child=QuotaSet),
        "next": s.CharField(allow_null=True),
    },
)
Draft = inline_serializer(
    "OperateQuotaDraft",
    fields={"tenant": s.CharField(), "gpu_type": s.CharField(), **_terms()},
)
Drafts = inline_serializer(
    "OperateQuotaDrafts",
    fields={
        "pool": s.CharField(),
        "from": _at(),
        "quotas": s.ListField(child=Draft, min_length=1, max_length=EDITS_MAX),
    },
)


class StandingTold(s.Serializer[object]):
    """A tenant's figures of a round: GPUs, and rho after it."""

    quota = s.IntegerField()
    deserved = s.IntegerField()
    got = s.IntegerField()
    borrowed = s.IntegerField()
    rho = s.FloatField(allow_null=True)


class ImpactRowTold(s.Serializer[object]):
    """One tenant and GPU type, with the present quotas and with the drafted ones."""

    tenant = s.CharField()
    gpu_type = s.CharField()
    before = StandingTold()
    after = StandingTold()


class ImpactTold(s.Serializer[object]):
    """An estimate of the next round, not a promise; `error` where there is none."""

    pool = s.CharField()
    round = s.IntegerField()
    at = s.DateTimeField()
    waiting_before = s.IntegerField()
    waiting_after = s.IntegerField()
    results = ImpactRowTold(many=True)
    error = s.CharField(allow_blank=True)


@dataclass(frozen=True, slots=True)
class Names:
    """Tenants and GPU types by id."""

    tenants: Mapping[int, str]
    types: Mapping[int, str]

    @classmethod
    def read(cls) -> Names:
        """Read them; there are few."""
        tenants = dict(Tenant.objects.values_list("id", "slug"))
        return cls(tenants, dict(GpuType.objects.values_list("id", "name")))


class QuotaList(PoolView):
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
            return _told(pool, read_clock(pool.pk).pool_at)


class QuotaOne(PoolView):
    """A tenant's quota of a GPU type in a pool."""

    @extend_schema(operation_id="operate_quota_show", responses={200: QuotasSet})
    def get(self, request: Request, name: str, slug: str, gpu_type: str) -> Response:  # noqa: ARG002 - DRF's
        """Show the periods of one quota; the ETag is of all quotas of the pool."""
        with site_scope():
            pool = self.named(name)
            return _told(pool, read_clock(pool.pk).pool_at, _key(pool, slug, gpu_type))

    @extend_schema(
        operation_id="operate_quota_set",
        request=QuotaWanted,
        responses={200: QuotasSet},
        parameters=[IF_MATCH],
    )
    def put(self, request: Request, name: str, slug: str, gpu_type: str) -> Response:
        """Let a quota hold from an instant on (now, unless told); `gpus` null ends it."""
        body, errors = body_of(request.data, (*TERMS, "from", "reason"))
        terms, until = _terms_read(body, errors), instant(body, "until", errors)
        since, reason = instant(body, "from", errors), words(body, "reason", errors)
        errors.raise_any()
        with self.edited(name) as (pool, now):
            key = _key(pool, slug, gpu_type)
            basis = basis_of(pool.pk, now)
            self.require_match(f'"{basis}"')
            with _named(lambda _: ""):
                save_quotas(
                    actor=self.actor,
                    pool_id=pool.pk,
                    pool_name=pool.name,
                    book=pool.book,
                    edits=[QuotaEdit(*key, terms, until)],
                    since=since or now,
                    now=now,
                    basis=basis,
                    next_round=next_number(pool.pk),
                    reason=reason,
                )
            return _told(pool, now, key)


class QuotaPreview(OperateView):
    """What drafted quotas would do."""

    preconditions: ClassVar[tuple[str, ...]] = ()

    @extend_schema(
        operation_id="operate_quota_preview", request=Drafts, responses={200: ImpactTold}
    )
    def post(self, request: Request) -> Response:
        """Decide the next round with the present quotas and with these; nothing is written."""
        body, errors = body_of(request.data, ("pool", "from", "quotas"))
        name, since = slug(body, "pool", errors), instant(body, "from", errors)
        drafts = _drafts(body.get("quotas"), errors)
        errors.raise_any()
        with site_scope():
            pool = Pool.objects.filter(name=name).first()
            if pool is None:
                raise bad_field("pool", "is not a pool")
            names, now = Names.read(), read_clock(pool.pk)
            edits = _edits(drafts, names)
        with _named(lambda index: f"quotas.{drafts[index][0]}.{drafts[index][1]}."):
            impact = quota_impact(pool_id=pool.pk, edits=edits, since=since or now.pool_at, now=now)
        return Response(_impact(impact, pool, names))


@contextmanager
def _named(place: Callable[[int], str]) -> Iterator[None]:
    """Name the service's fields as these addresses do; `place`: of the edit of an index."""
    try:
        yield
    except InvalidInputError as error:
        raise InvalidInputError([_named_error(one, place) for one in error.errors]) from error


def _named_error(error: FieldError, place: Callable[[int], str]) -> FieldError:
    found = _EDIT.fullmatch(error.field)
    if found:
        return replace(error, field=f"{place(int(found[1]))}{found[2]}")
    return replace(error, field="from") if error.field == "since" else error


def _key(pool: Pool, slug: str, gpu_type: str) -> Key:
    """The quota that an address names: of a tenant, and of a type that the pool has or had."""
    tenant = Tenant.objects.filter(slug=slug).first()
    kinds = GpuType.objects.filter(name=gpu_type)
    kind = kinds.filter(node__pool=pool).first() or kinds.filter(quota__pool=pool).first()
    if tenant is None or kind is None:
        raise not_there()
    return tenant.pk, kind.pk


def _terms_read(body: Mapping[str, Any], errors: FieldErrors, place: str = "") -> QuotaTerms | None:
    """What shall hold; None where `gpus` is null, which ends the quota."""
    if "gpus" not in body:
        errors.add(f"{place}gpus", "is required", "Write null to end the quota.")
    counts = {
        name: number(body, name, errors, most=GPUS_MAX, place=place)
        for name in ("gpus", "borrow_limit", "lend_limit")
    }
    mode = body.get("mode", Mode.LEND_AND_BORROW.value)
    if not isinstance(mode, str) or mode not in MODES:
        errors.add(f"{place}mode", "is not a mode", f"One of {', '.join(MODES)}.")
        return None
    gpus = counts["gpus"]
    return (
        None
        if gpus is None
        else QuotaTerms(gpus, mode, counts["borrow_limit"], counts["lend_limit"])
    )


# (tenant, GPU type, terms, until)
_Draft = tuple[str, str, QuotaTerms | None, datetime | None]


def _drafts(value: Any, errors: FieldErrors) -> list[_Draft]:
    if not isinstance(value, list) or not 1 <= len(value) <= EDITS_MAX:
        errors.add("quotas", f"must be a list of 1 to {EDITS_MAX:,} quotas")
        return []
    read: list[_Draft] = []
    for index, row in enumerate(value):
        place = f"quotas[{index}]."
        if not isinstance(row, dict):
            errors.add(place[:-1], "must be an object")
            continue
        for extra in sorted(set(row) - {"tenant", "gpu_type", *TERMS})[:10]:
            errors.add(f"{place}{ascii(extra)[1:-1][:60]}", "is not a field of a quota")
        tenant, kind = slug(row, "tenant", errors, place), slug(row, "gpu_type", errors, place)
        terms, until = _terms_read(row, errors, place), instant(row, "until", errors, place)
        if any((tenant, kind) == earlier[:2] for earlier in read):
            errors.add(f"{place}tenant", "is there twice with this GPU type")
        read.append((tenant, kind, terms, until))
    return read


def _edits(drafts: list[_Draft], names: Names) -> list[QuotaEdit]:
    tenants = {slug: key for key, slug in names.tenants.items()}
    types = {name: key for key, name in names.types.items()}
    errors, edits = FieldErrors(), []
    for index, (tenant, kind, terms, until) in enumerate(drafts):
        if tenant not in tenants:
            errors.add(f"quotas[{index}].tenant", "is not a tenant")
        elif kind not in types:
            errors.add(f"quotas[{index}].gpu_type", "is not a GPU type")
        else:
            edits.append(QuotaEdit(tenants[tenant], types[kind], terms, until))
    errors.raise_any()
    return edits


def _told(pool: Pool, now: datetime, only: Key | None = None) -> Response:
    names = Names.read()
    rows = [
        _row(pool, key, period, names)
        for key, periods in quota_periods(pool.pk, now).items()
        if only in (None, key)
        for period in periods
    ]
    rows.sort(key=lambda row: (row["gpu_type"], row["tenant"], row["from"]))
    return answer(page(rows), f'"{basis_of(pool.pk, now)}"')


def _row(pool: Pool, key: Key, period: Period, names: Names) -> dict[str, Any]:
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


def _impact(impact: Impact, pool: Pool, names: Names) -> dict[str, Any]:
    return {
        "pool": pool.name,
        "round": impact.number,
        "at": time_text(impact.at),
        "waiting_before": impact.waiting[0],
        "waiting_after": impact.waiting[1],
        "results": [
            {
                "tenant": names.tenants.get(row.tenant, ""),
                "gpu_type": row.gpu_type,
                "before": _standing(row.before),
                "after": _standing(row.after),
            }
            for row in impact.rows
        ],
        "error": impact.error,
    }


def _standing(row: Standing) -> dict[str, Any]:
    return {
        "quota": row.quota,
        "deserved": row.deserved,
        "got": row.got,
        "borrowed": row.borrowed,
        "rho": row.rho,
    }
