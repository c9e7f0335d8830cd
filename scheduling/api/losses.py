"""Leases that vanished at the same time: their list, and the acceptance of their loss."""

from __future__ import annotations

from rest_framework import serializers as s
from rest_framework.request import Request
from rest_framework.response import Response

from scheduling.api.base import OperatePoolView
from scheduling.selectors.operate.losses import FrozenLeases, MissingLease, frozen_leases
from scheduling.services.executors import accept_losses
from tenants.answers import time_text
from tenants.api.answer_schemas import answer_serializer
from tenants.api.operate import IF_MATCH, answer, etag_of, request_of
from tenants.api.resources import Shown, described
from tenants.requests import ReasonRequest
from tenants.scopes import site_scope


class PoolLosses(s.Serializer[object]):
    """Leases that vanished at the same time; they end only when an operator accepts their loss.

    They continue if the executor lists them again. `frozen_since` is null and `missing` is empty if
    no leases are frozen.
    """

    frozen_since = s.DateTimeField(allow_null=True)
    launched = s.IntegerField(
        help_text="Number of launched leases at the last comparison with the executor."
    )
    missing = answer_serializer(MissingLease)(many=True)


class PoolLossesView(OperatePoolView):
    def losses(self, frozen: FrozenLeases | None) -> Response:
        body = {
            "frozen_since": time_text(frozen.since) if frozen else None,
            "launched": frozen.launched if frozen else 0,
            "missing": self.shown(frozen.leases if frozen else ()),
        }
        return answer(body, _tag(frozen))


class PoolLossesShow(Shown, PoolLossesView):
    """List a pool's leases that vanished at the same time; the ETag identifies this set."""

    address = "operate/pools/<slug:name>/losses"
    operation = "operate_losses_show"
    answer = PoolLosses

    def show(self, name: str) -> Response:
        with site_scope():
            return self.losses(frozen_leases(self.named(name).pk))


class PoolLossesAccept(PoolLossesView):
    address = "operate/pools/<slug:name>/losses/accept"

    @described("operate_losses_accept", ReasonRequest, PoolLosses, 200, IF_MATCH)
    def post(self, request: Request, name: str) -> Response:
        """Accept the loss of these leases: the next round ends them.

        Returns 409 if none are frozen.
        """
        reason = request_of(ReasonRequest, request.data).reason
        with self.edited(name) as (pool, _):
            present = frozen_leases(pool.pk, lock=True)
            self.require_match(_tag(present))
            accept_losses(actor=self.actor, pool=pool, reason=reason)
            return self.losses(frozen_leases(pool.pk))


def _tag(frozen: FrozenLeases | None) -> str:
    return etag_of(frozen.seen if frozen else "")
