"""An operator's pools: policy, lengths, visibility, prices, and the clock."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers as s
from rest_framework.request import Request
from rest_framework.response import Response

from scheduling.api.operate_base import PoolView
from scheduling.api.operate_read import body_of, options
from scheduling.api.policy_options import PolicyOptions
from scheduling.api.render import credits_text
from scheduling.api.schemas import Credits
from scheduling.engine.clock import read_clock
from scheduling.models import Pool
from scheduling.selectors.pool_settings import PoolSettings, pool_settings
from scheduling.services.pools import LENGTHS, SCALE_MAX, PoolPatch, patch_pool, set_pool_clock
from tenants.api.operate import IF_MATCH, answer, etag_of
from tenants.api.problems import not_there
from tenants.api.times import time_text
from tenants.input import readers
from tenants.input.errors import FieldErrors
from tenants.input.readers import SLUG, slug, whole, words
from tenants.scopes import site_scope

FIELDS = ("policy", "options", "visibility", *LENGTHS, "prices", "reason")
TYPES_MAX = 64


class PriceTerms(s.Serializer[object]):
    """Price of a GPU-hour: base x (theta^(used / GPUs) - 1)."""

    base = Credits()
    theta = s.RegexField(r"^[0-9]+\.[0-9]{3}$")


class PriceTermsWanted(s.Serializer[object]):
    """What of a price shall differ."""

    base = s.RegexField(r"^[0-9]{1,14}(\.[0-9]{1,6})?$", required=False)
    theta = s.RegexField(r"^[0-9]{1,3}(\.[0-9]{1,3})?$", required=False)


class PoolSet(s.Serializer[object]):
    """All that an operator may set for a pool. `now` is pool time."""

    name = s.CharField()
    policy = s.CharField()
    options = PolicyOptions()
    visibility = s.ChoiceField(list(Pool.Visibility.values))
    round_s = s.IntegerField()
    lease_s = s.IntegerField()
    grace_s = s.IntegerField()
    outage_grace_s = s.IntegerField()
    prices = s.DictField(child=PriceTerms())
    book = s.CharField()
    executor = s.CharField()
    scale = s.IntegerField()
    paused = s.BooleanField()
    now = s.DateTimeField()


class PoolWanted(s.Serializer[object]):
    """What shall differ; the rest stays."""

    policy = s.CharField(required=False)
    options = PolicyOptions(required=False)
    visibility = s.ChoiceField(list(Pool.Visibility.values), required=False)
    round_s = s.IntegerField(required=False, min_value=1)
    lease_s = s.IntegerField(required=False, min_value=1)
    grace_s = s.IntegerField(required=False, min_value=0)
    outage_grace_s = s.IntegerField(required=False, min_value=0)
    prices = s.DictField(child=PriceTermsWanted(), required=False)
    reason = s.CharField(required=False, allow_blank=True)


class OperateReason(s.Serializer[object]):
    """A reason for the audit log."""

    reason = s.CharField(required=False, allow_blank=True)


class ScaleWanted(OperateReason):
    """Seconds of pool time per second of the wall."""

    scale = s.IntegerField(min_value=1, max_value=SCALE_MAX)


class PoolOne(PoolView):
    """One pool's settings."""

    @extend_schema(operation_id="operate_pool_show", responses={200: PoolSet})
    def get(self, request: Request, name: str) -> Response:  # noqa: ARG002 - DRF's signature
        """Show what an operator may set for a pool; the ETag is of all of it."""
        with site_scope():
            return _told(_found(name))

    @extend_schema(
        operation_id="operate_pool_change",
        request=PoolWanted,
        responses={200: PoolSet},
        parameters=[IF_MATCH],
    )
    def patch(self, request: Request, name: str) -> Response:
        """Change some settings, all or none; the next round uses them."""
        wanted = _patch(request.data)
        with site_scope():
            present = _found(name, lock=True)
            self.require_match(etag_of(_state(present)))
            patch_pool(actor=self.actor, settings=present, patch=wanted)
            return _told(_found(name))


class PoolClockView(PoolView):
    """A change of a pool's clock; pool time never jumps."""

    paused: ClassVar[bool | None] = None
    known: ClassVar[tuple[str, ...]] = ("reason",)

    def change(self, request: Request, name: str) -> Response:
        """Set the clock as the address and the body say."""
        body, errors = body_of(request.data, self.known)
        reason = words(body, "reason", errors)
        scale = None
        if "scale" in self.known:
            scale = whole(body, "scale", errors, least=1, most=SCALE_MAX, required=True)
        errors.raise_any()
        with site_scope():
            present = _found(name, lock=True)
            self.require_match(etag_of(_state(present)))
            set_pool_clock(
                actor=self.actor,
                pool_id=present.pool.pk,
                paused=self.paused,
                scale=scale,
                reason=reason,
            )
            return _told(_found(name))


class PoolPause(PoolClockView):
    """The clock's stop."""

    paused: ClassVar[bool | None] = True

    @extend_schema(
        operation_id="operate_pool_pause",
        request=OperateReason,
        responses={200: PoolSet},
        parameters=[IF_MATCH],
    )
    def post(self, request: Request, name: str) -> Response:
        """Let a pool's clock stand still: no round is decided, no lease ends."""
        return self.change(request, name)


class PoolResume(PoolClockView):
    """The clock's start."""

    paused: ClassVar[bool | None] = False

    @extend_schema(
        operation_id="operate_pool_resume",
        request=OperateReason,
        responses={200: PoolSet},
        parameters=[IF_MATCH],
    )
    def post(self, request: Request, name: str) -> Response:
        """Let a pool's clock go on from where it stood."""
        return self.change(request, name)


class PoolScale(PoolClockView):
    """The clock's speed."""

    known: ClassVar[tuple[str, ...]] = ("scale", "reason")

    @extend_schema(
        operation_id="operate_pool_scale",
        request=ScaleWanted,
        responses={200: PoolSet},
        parameters=[IF_MATCH],
    )
    def post(self, request: Request, name: str) -> Response:
        """Set how many seconds of pool time go by in one of the wall."""
        return self.change(request, name)


def _found(name: str, *, lock: bool = False) -> PoolSettings:
    found = pool_settings(name, lock=lock)
    if found is None:
        raise not_there()
    return found


def _state(found: PoolSettings) -> dict[str, Any]:
    """What the tag is of."""
    pool = found.pool
    return {
        "name": pool.name,
        "policy": pool.policy,
        "options": dict(found.options),
        "visibility": pool.visibility,
        **{name: getattr(pool, name) for name in LENGTHS},
        "prices": {
            kind: {"base": credits_text(row.base), "theta": f"{row.theta:.3f}"}
            for kind, row in found.prices.items()
        },
        "book": pool.book,
        "executor": pool.executor,
        "scale": found.clock.scale,
        "paused": found.clock.paused,
    }


def _told(found: PoolSettings) -> Response:
    state = _state(found)
    now = time_text(read_clock(found.pool.pk).pool_at)
    return answer({**state, "now": now}, etag_of(state))


def _patch(data: Any) -> PoolPatch:
    body, errors = body_of(data, FIELDS)
    if not set(body) - {"reason"}:
        errors.add("", "names nothing to change", f"Fields: {', '.join(FIELDS)}.")
    lengths = {
        name: whole(body, name, errors, least=least, most=most)
        for name, (least, most) in LENGTHS.items()
        if name in body
    }
    wanted = PoolPatch(
        policy=slug(body, "policy", errors) if "policy" in body else None,
        options=options(body, errors),
        lengths={name: value for name, value in lengths.items() if value is not None},
        visibility=slug(body, "visibility", errors) if "visibility" in body else None,
        prices=_prices(body, errors),
        reason=words(body, "reason", errors),
    )
    errors.raise_any()
    return wanted


def _prices(
    body: dict[str, Any], errors: FieldErrors
) -> dict[str, tuple[Decimal | None, Decimal | None]]:
    value = body.get("prices", {})
    if not isinstance(value, dict) or len(value) > TYPES_MAX:
        hint = 'Write {"v100": {"base": "1.000000", "theta": "2.000"}}.'
        errors.add("prices", "must be an object of GPU types", hint)
        return {}
    read = {}
    for name, terms in value.items():
        place = f"prices.{ascii(name)[1:-1][:60]}"
        if not SLUG.fullmatch(name) or not isinstance(terms, dict):
            errors.add(place, "must be an object with base and theta")
            continue
        for extra in sorted(set(terms) - {"base", "theta"})[:10]:
            errors.add(f"{place}.{ascii(extra)[1:-1][:20]}", "is not a field of a price")
        given = {f"{place}.{key}": item for key, item in terms.items()}
        base, theta = (
            readers.credits(given, f"{place}.{key}", errors) for key in ("base", "theta")
        )
        read[name] = (base, theta)
    return read
