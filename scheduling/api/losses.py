"""Leases that vanished at the same time: their list, and the acceptance of their loss."""

from rest_framework.request import Request
from rest_framework.response import Response

from scheduling.api.base import OperatePoolView
from scheduling.selectors.operate.losses import FrozenLeases, frozen_leases
from scheduling.services.executors import accept_losses
from tenants.answers import plain
from tenants.api.operate import IF_MATCH, answer, etag_of, request_of
from tenants.api.resources import Shown, described
from tenants.requests import ReasonRequest
from tenants.scopes import site_scope


class PoolLossesView(OperatePoolView):
    def losses(self, frozen: FrozenLeases | None) -> Response:
        shown = frozen or FrozenLeases()
        return answer({**plain(shown), "missing": self.shown(shown.leases)}, _tag(frozen))


class PoolLossesShow(Shown, PoolLossesView):
    """List a pool's leases that vanished at the same time; the ETag identifies this set."""

    address = "operate/pools/<slug:name>/losses"
    operation = "operate_losses_show"
    answer = FrozenLeases

    def show(self, name: str) -> Response:
        with site_scope():
            return self.losses(frozen_leases(self.named(name).pk))


class PoolLossesAccept(PoolLossesView):
    address = "operate/pools/<slug:name>/losses/accept"

    @described("operate_losses_accept", ReasonRequest, FrozenLeases, 200, IF_MATCH)
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
