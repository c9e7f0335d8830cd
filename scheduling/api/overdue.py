"""Leases that should have ended: list them, and end one."""

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from scheduling.api.base import OperatePoolView
from scheduling.engine.clock import read_clock
from scheduling.models import Pool
from scheduling.requests.leases import EndLeaseRequest
from scheduling.selectors.operate.overdue import OverdueLease, overdue_leases
from scheduling.services.write_offs import end_lease
from tenants.api.operate import IF_MATCH, answer, etag_of, page, request_of
from tenants.api.resources import Listed, Page, described
from tenants.scopes import site_scope


class OverdueView(OperatePoolView):
    """Base of views of leases that should have ended."""

    def rows(self, pool: Pool) -> list[OverdueLease]:
        now = read_clock(pool.pk)
        return overdue_leases(pool, now.pool_at, now.scale)


class OverdueList(Listed, OverdueView):
    """List a pool's leases that should have ended; the ETag identifies this set."""

    address = "operate/pools/<slug:name>/overdue"
    operation = "operate_overdue_list"
    row = OverdueLease
    about = "Overdue leases of a pool, longest overdue first."

    def page(self, name: str) -> Page:
        with site_scope():
            rows = self.rows(self.named(name))
            return Page(self.shown(rows), etag=_tag(rows))


class OverdueEnd(OverdueView):
    address = "operate/pools/<slug:name>/overdue/<uuid:uid>/<int:number>/end"

    @described("operate_overdue_end", EndLeaseRequest, OverdueList.answered(), 200, IF_MATCH)
    def post(self, request: Request, name: str, uid: UUID, number: int) -> Response:
        """Have the next round end a lease that its engine does not end.

        Returns 409 if it is not overdue.
        """
        wanted = request_of(EndLeaseRequest, request.data)
        with self.edited(name) as (pool, _):
            self.require_match(_tag(self.rows(pool)))
            end_lease(actor=self.actor, pool=pool, job=uid, number=number, request=wanted)
            rows = self.rows(pool)
            return answer(page(self.shown(rows)), _tag(rows))


def _tag(rows: list[OverdueLease]) -> str:
    return etag_of([[row.id, row.due.isoformat()] for row in rows])
