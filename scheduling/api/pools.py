"""Pools, their queues, quotas, and rounds, as the caller may see them."""

from __future__ import annotations

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from evenshare_core.domain.instants import from_us, to_us
from scheduling.api import schemas
from scheduling.api.base import SchedulingView
from scheduling.api.render import (
    pool_json,
    round_json,
    round_view_json,
    tenant_json,
    types_json,
)
from scheduling.engine.clock import pool_time
from scheduling.models import Job
from scheduling.selectors.certificates import view_certificate
from scheduling.selectors.job_lists import QueueKey, list_queue
from scheduling.selectors.lines import PoolFacts
from scheduling.selectors.pools import pool_overview
from scheduling.selectors.quotas import list_quotas
from scheduling.selectors.rounds import round_view, rounds_page
from scheduling.selectors.visibility import Visibility, read_visibility
from tenants.api.cursors import make_cursor, read_cursor, read_limit
from tenants.api.problems import not_there
from tenants.api.times import time_text
from tenants.scopes import site_scope


def _pool(facts: PoolFacts) -> dict[str, Any]:
    return pool_json(facts, pool_time(facts.clock, facts.wall))


class PoolList(SchedulingView):
    """All pools of the caller's tenants."""

    @extend_schema(operation_id="pool_list", responses={200: schemas.PoolPage})
    def get(self, request: Request) -> Response:  # noqa: ARG002 - DRF's signature
        """List your pools with their clocks and last rounds."""
        return Response({"results": [_pool(facts) for facts in self.pools()], "next": None})


class PoolShow(SchedulingView):
    """One pool."""

    @extend_schema(operation_id="pool_show", responses={200: schemas.PoolWhole})
    def get(self, request: Request, name: str) -> Response:  # noqa: ARG002 - DRF's signature
        """Show a pool: its nodes, what is used, own, borrowed and idle, by GPU type."""
        facts = self.pool(name)
        with site_scope():
            overview = pool_overview(facts.id, read_visibility(facts.id, self.access))
        return Response({**_pool(facts), "types": types_json(overview)})


class PoolQueue(SchedulingView):
    """Who waits in a pool."""

    query: ClassVar[tuple[str, ...]] = ("cursor", "limit")

    @extend_schema(
        operation_id="pool_queue", responses={200: schemas.QueuePage}, parameters=schemas.PAGE_QUERY
    )
    def get(self, request: Request, name: str) -> Response:
        """List waiting jobs in the order of arrival; of others, what the pool lets you see."""
        facts, limit = self.pool(name), read_limit(request)
        route = f"queue.{facts.id}"
        key = read_cursor(request, route)
        after = QueueKey(from_us(key[0]), key[1], key[2]) if key else None
        with site_scope():
            rows, more = list_queue(facts.id, after=after, limit=limit)
            visibility = read_visibility(facts.id, self.access)
        shown = [_queued(position, job, visibility) for position, job in rows]
        following = None
        if more:
            position, job = rows[-1]
            following = make_cursor(route, to_us(job.submitted_at), job.pk, position)
        return Response({"results": shown, "next": following})


def _queued(position: int, job: Job, visibility: Visibility) -> dict[str, Any]:
    """A waiting job; names, ids and reasons of others' jobs are nobody's affair."""
    known = visibility.jobs_of(job.tenant_id)
    return {
        "position": position,
        "tenant": tenant_json(visibility.of(job.tenant_id)),
        "id": str(job.uid) if known else None,
        "name": job.name if known else None,
        "reason_code": job.reason_code if known else None,
        "gpus": job.gpus,
        "submitted_at": time_text(job.submitted_at),
    }


class QuotaList(SchedulingView):
    """What the caller's tenants are entitled to."""

    query: ClassVar[tuple[str, ...]] = ("tenant", "pool", "cursor", "limit")

    @extend_schema(
        operation_id="quota_list",
        responses={200: schemas.QuotaPage},
        parameters=schemas.QUOTA_QUERY,
    )
    def get(self, request: Request) -> Response:
        """List quotas with their periods, newest first."""
        tenant, limit = self.filtered_tenant(), read_limit(request)
        key = read_cursor(request, "quotas")
        with site_scope():
            rows, more = list_quotas(
                self.tenants() if tenant is None else [tenant.pk],
                pool=request.query_params.get("pool", ""),
                before=key[0] if key else None,
                limit=limit,
            )
        shown = [
            {
                "tenant": row.tenant.slug,
                "pool": row.pool.name,
                "gpu_type": row.gpu_type.name,
                "gpus": row.gpus,
                "mode": row.mode,
                "borrow_limit": row.borrow_limit,
                "lend_limit": row.lend_limit,
                "valid_from": time_text(row.valid_from),
                "valid_until": time_text(row.valid_until),
            }
            for row in rows
        ]
        following = make_cursor("quotas", rows[-1].pk) if more else None
        return Response({"results": shown, "next": following})


class RoundList(SchedulingView):
    """Rounds of one pool."""

    query: ClassVar[tuple[str, ...]] = ("pool", "cursor", "limit")

    @extend_schema(
        operation_id="round_list", responses={200: schemas.RoundPage}, parameters=schemas.POOL_QUERY
    )
    def get(self, request: Request) -> Response:
        """List the rounds of a pool, newest first."""
        facts, limit = self.query_pool(), read_limit(request)
        route = f"rounds.{facts.id}"
        key = read_cursor(request, route)
        with site_scope():
            page = rounds_page(facts.id, before=key[0] if key else None, limit=limit)
        following = None if page.older is None else make_cursor(route, page.older)
        shown = [round_json(row, facts.name) for row in page.rows]
        return Response({"results": shown, "next": following})


class RoundShow(SchedulingView):
    """One round."""

    @extend_schema(operation_id="round_show", responses={200: schemas.RoundWhole})
    def get(self, request: Request, name: str, number: int) -> Response:  # noqa: ARG002 - DRF's
        """Show a round: shares, certificate, reasons, prices, and the hashes of its bytes."""
        facts = self.pool(name)
        with site_scope():
            visibility = read_visibility(facts.id, self.access)
            view = round_view(facts.id, number, visibility) if number < 2**62 else None
            seen = view_certificate(view.round, visibility) if view else None
        if view is None:
            raise not_there()
        return Response(round_view_json(view, seen, facts.name))
