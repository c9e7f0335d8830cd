"""The log of a pool's rounds: its signed head, its records, and the proofs of both."""

from __future__ import annotations

from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers as s
from rest_framework.request import Request
from rest_framework.response import Response

from scheduling.api.base import SchedulingView
from scheduling.selectors.rounds.log import logged_rounds, newest_round, place_of_round, round_of
from tenants import transparency
from tenants.api import logs
from tenants.api.problems import not_there


class RoundLogHead(logs.LogHead):
    """The signed head of the log of a pool's rounds."""

    round = s.IntegerField(allow_null=True, help_text="The last one in it; null: it has none yet.")


class ChainHead(SchedulingView):
    """Where a pool's log ends."""

    @extend_schema(operation_id="chain_show", responses={200: RoundLogHead})
    def get(self, request: Request, name: str) -> Response:  # noqa: ARG002 - DRF's signature
        """Show the signed head of a pool's log, and the keys that sign it."""
        log = transparency.round_log(self.pool(name).name)
        with logs.log_scope():
            return Response(logs.head_json(log) | {"round": newest_round(log)})


class ChainRecords(SchedulingView):
    """What a pool's log says of rounds."""

    query: ClassVar[tuple[str, ...]] = ("first", "last")

    @extend_schema(
        operation_id="chain_records",
        responses={200: logs.RecordPage},
        parameters=[
            logs.number_parameter("first", "The first round; by default the log's first."),
            logs.number_parameter("last", "The last round; by default the log's last."),
        ],
    )
    def get(self, request: Request, name: str) -> Response:
        """List records of rounds, oldest first, 500 at most; go on with `first` as `next` says."""
        log = transparency.round_log(self.pool(name).name)
        first = logs.query_number(request, "first", 0)
        last = logs.query_number(request, "last", logs.NUMBER_MAX)
        with logs.log_scope():
            return Response(_page(log, first, last))


class ChainInclusion(SchedulingView):
    """That a round is in a pool's log."""

    query: ClassVar[tuple[str, ...]] = ("round", "size")

    @extend_schema(
        operation_id="chain_inclusion",
        responses={200: logs.InclusionProof},
        parameters=[
            logs.number_parameter("round", "The number of a round.", required=True),
            logs.SIZE,
        ],
    )
    def get(self, request: Request, name: str) -> Response:
        """Prove that a round's record is in the log of a size (RFC 6962, audit path)."""
        log = transparency.round_log(self.pool(name).name)
        number = logs.query_number(request, "round")
        with logs.log_scope():
            place = place_of_round(log, number)
            if place is None:
                raise not_there()
            return Response(logs.inclusion_json(request, log, place, "round"))


class ChainConsistency(SchedulingView):
    """That a pool's log only grew."""

    query: ClassVar[tuple[str, ...]] = ("first", "second")

    @extend_schema(
        operation_id="chain_consistency",
        responses={200: logs.ConsistencyProof},
        parameters=[logs.FIRST, logs.SECOND],
    )
    def get(self, request: Request, name: str) -> Response:
        """Prove that the log of `second` entries begins with that of `first` (RFC 6962)."""
        log = transparency.round_log(self.pool(name).name)
        with logs.log_scope():
            return Response(logs.consistency_json(request, log))


def _page(log: str, first: int, last: int) -> dict[str, Any]:
    entries = logged_rounds(log, first, last, logs.RECORDS_MAX)
    newest = newest_round(log)
    following = None
    if entries and newest is not None:
        after = round_of(entries[-1]).round + 1
        following = after if after <= min(last, newest) else None
    return logs.records_json(entries, following)
