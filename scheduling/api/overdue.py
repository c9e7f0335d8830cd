"""Leases that should have ended: their list, and the end of one."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from drf_spectacular.utils import extend_schema
from rest_framework import serializers as s
from rest_framework.request import Request
from rest_framework.response import Response

from scheduling.api.base import OperatePoolView
from scheduling.api.render import job_ref_json
from scheduling.api.schemas import JobRefRow
from scheduling.engine.clock import read_clock
from scheduling.models import Pool
from scheduling.requests.leases import EndLeaseRequest
from scheduling.selectors.overdue import OverdueLease, StopAnswer, overdue_leases
from scheduling.services.write_offs import end_lease
from tenants.api.operate import IF_MATCH, answer, etag_of, page, request_of
from tenants.api.request_schemas import request_serializer
from tenants.api.times import time_text
from tenants.permissions import Action, may_on_site
from tenants.scopes import site_scope


class OverdueLeaseRow(s.Serializer[object]):
    """A lease whose stop was due at `due` (pool time); it holds its GPUs until it ends.

    `engine` is what its engine last said of its process; `since` (wall time) and `error` where they
    are known. `reason`: what it is to end for. `written_off`: an operator asked for its end, and
    the next round ends it.
    """

    job = JobRefRow(allow_null=True, help_text="Null: jobs of tenants are not for your role.")
    tenant = s.CharField()
    lease = s.IntegerField()
    gpus = s.IntegerField()
    nodes = s.ListField(child=s.CharField())
    reason = s.CharField()
    due = s.DateTimeField()
    overdue_s = s.FloatField(help_text="Seconds of pool time since then.")
    engine = s.ChoiceField(choices=[one.value for one in StopAnswer])
    since = s.DateTimeField(allow_null=True)
    error = s.CharField(allow_blank=True)
    written_off = s.BooleanField()


class OverdueLeasePage(s.Serializer[object]):
    """Leases of a pool that should have ended, longest overdue first."""

    results = OverdueLeaseRow(many=True)
    next = s.CharField(allow_null=True)


class OverdueView(OperatePoolView):
    """Leases that should have ended."""

    def rows(self, pool: Pool) -> tuple[list[OverdueLease], datetime]:
        """Return overdue leases, and the pool's time."""
        now = read_clock(pool.pk)
        return overdue_leases(pool, now.pool_at, now.scale), now.pool_at

    def listed(self, rows: list[OverdueLease], now: datetime) -> Response:
        """Return the answer; jobs are null for a role that may not see them."""
        with_jobs = may_on_site(self.access.site_role, Action.SEE_TENANT)
        return answer(page(_lease(one, now, with_jobs=with_jobs) for one in rows), _tag(rows))


class OverdueList(OverdueView):
    """The list of a pool."""

    @extend_schema(operation_id="operate_overdue_list", responses={200: OverdueLeasePage})
    def get(self, request: Request, name: str) -> Response:  # noqa: ARG002 - DRF's signature
        """List the leases of a pool that should have ended; the ETag is of exactly these."""
        with site_scope():
            return self.listed(*self.rows(self.named(name)))


class OverdueEnd(OverdueView):
    """The end of one."""

    @extend_schema(
        operation_id="operate_overdue_end",
        request=request_serializer(EndLeaseRequest),
        responses={200: OverdueLeasePage},
        parameters=[IF_MATCH],
    )
    def post(self, request: Request, name: str, uid: UUID, number: int) -> Response:
        """Have the next round end a lease that its engine does not end. 409: it is not overdue."""
        wanted = request_of(EndLeaseRequest, request.data)
        with self.edited(name) as (pool, _):
            self.require_match(_tag(self.rows(pool)[0]))
            end_lease(actor=self.actor, pool=pool, job=uid, number=number, request=wanted)
            return self.listed(*self.rows(pool))


def _tag(rows: list[OverdueLease]) -> str:
    return etag_of([[row.id, row.due.isoformat()] for row in rows])


def _lease(row: OverdueLease, now: datetime, *, with_jobs: bool) -> dict[str, Any]:
    return {
        "job": job_ref_json(row.job) if with_jobs else None,
        "tenant": row.tenant,
        "lease": row.number,
        "gpus": row.gpus,
        "nodes": list(row.nodes),
        "reason": row.reason,
        "due": time_text(row.due),
        "overdue_s": (now - row.due).total_seconds(),
        "engine": row.engine.value,
        "since": time_text(row.since),
        "error": row.error,
        "written_off": row.is_written_off,
    }
