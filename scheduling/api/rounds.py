"""Rounds of a pool, as the caller may see them."""

from __future__ import annotations

from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from scheduling.api import round_schemas, schemas
from scheduling.api.base import SchedulingView
from scheduling.api.round_render import chain_json, round_json, round_view_json
from scheduling.selectors.bundles import read_place
from scheduling.selectors.certificates import view_certificate
from scheduling.selectors.round_lists import rounds_page
from scheduling.selectors.rounds import round_view
from scheduling.selectors.visibility import read_visibility
from tenants.api.cursors import make_cursor, read_cursor, read_limit
from tenants.api.problems import not_there
from tenants.scopes import site_scope


class RoundList(SchedulingView):
    """Rounds of one pool."""

    query: ClassVar[tuple[str, ...]] = ("pool", "cursor", "limit")

    @extend_schema(
        operation_id="round_list",
        responses={200: round_schemas.RoundPage},
        parameters=schemas.POOL_QUERY,
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

    @extend_schema(operation_id="round_show", responses={200: round_schemas.RoundWhole})
    def get(self, request: Request, name: str, number: int) -> Response:  # noqa: ARG002 - DRF's
        """Show a round: shares, certificate, reasons, prices, trades, hashes of its bytes.

        `bundle` is the address from which it can be recomputed, `record` its place in the log.
        """
        facts = self.pool(name)
        with site_scope():
            visibility = read_visibility(facts.id, self.access)
            view = round_view(facts.id, number, visibility) if number < 2**62 else None
            seen = view_certificate(view.round, visibility) if view else None
            place = read_place(facts.id, number) if view else None
        if view is None:
            raise not_there()
        shown = round_view_json(view, seen, facts.name)
        return Response(shown | chain_json(place, facts.name))
