"""An operator's pools: policy, lengths, visibility, prices, and the clock."""

from __future__ import annotations

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers as s
from rest_framework.request import Request
from rest_framework.response import Response

from scheduling.api.operate_base import PoolView
from scheduling.api.policy_options import PolicyOptions
from scheduling.api.render import credits_text
from scheduling.api.schemas import Credits
from scheduling.engine.clock import read_clock
from scheduling.models import Pool
from scheduling.requests.pools import LENGTHS, PoolChangeRequest, ScaleRequest
from scheduling.selectors.pool_settings import PoolSettings, pool_settings
from scheduling.services.pools import patch_pool, set_pool_clock
from tenants.api.operate import IF_MATCH, answer, etag_of, request_of
from tenants.api.problems import not_there
from tenants.api.request_schemas import request_serializer
from tenants.api.times import time_text
from tenants.input.errors import invalid
from tenants.input.requests import request_fields
from tenants.requests import ReasonRequest
from tenants.scopes import site_scope


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


PoolChange = request_serializer(
    PoolChangeRequest,
    options=PolicyOptions(required=False),
    prices=s.DictField(child=PriceTermsWanted(), required=False),
)


OperateReason = request_serializer(ReasonRequest)


class PoolOne(PoolView):
    """One pool's settings."""

    @extend_schema(operation_id="operate_pool_show", responses={200: PoolSet})
    def get(self, request: Request, name: str) -> Response:  # noqa: ARG002 - DRF's signature
        """Show what an operator may set for a pool; the ETag is of all of it."""
        with site_scope():
            return _told(_found(name))

    @extend_schema(
        operation_id="operate_pool_change",
        request=PoolChange,
        responses={200: PoolSet},
        parameters=[IF_MATCH],
    )
    def patch(self, request: Request, name: str) -> Response:
        """Change some settings, all or none; the next round uses them."""
        wanted = _pool_change(request.data)
        with site_scope():
            present = _found(name, lock=True)
            self.require_match(etag_of(_state(present)))
            patch_pool(actor=self.actor, settings=present, request=wanted)
            return _told(_found(name))


class PoolClockView(PoolView):
    """A change of a pool's clock; pool time never jumps."""

    paused: ClassVar[bool | None] = None
    body: ClassVar[type[ReasonRequest]] = ReasonRequest

    def change(self, request: Request, name: str) -> Response:
        """Set the clock as the address and the body say."""
        wanted = request_of(self.body, request.data)
        scale = wanted.scale if isinstance(wanted, ScaleRequest) else None
        with site_scope():
            present = _found(name, lock=True)
            self.require_match(etag_of(_state(present)))
            set_pool_clock(
                actor=self.actor,
                pool_id=present.pool.pk,
                paused=self.paused,
                scale=scale,
                reason=wanted.reason,
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

    body: ClassVar[type[ReasonRequest]] = ScaleRequest

    @extend_schema(
        operation_id="operate_pool_scale",
        request=request_serializer(ScaleRequest),
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


def _pool_change(data: Any) -> PoolChangeRequest:
    wanted = request_of(PoolChangeRequest, data)
    if not set(data) - {"reason"}:
        fields = ", ".join(request_fields(PoolChangeRequest))
        raise invalid("", "names nothing to change", f"Fields: {fields}.")
    return wanted
