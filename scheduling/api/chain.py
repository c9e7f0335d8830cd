"""The log of a pool's rounds: its signed head, its records, and the proofs of both."""

from __future__ import annotations

from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from evenshare_core.chain.answers import RoundLogHead
from scheduling.api.base import SchedulingView
from scheduling.selectors.rounds.log import logged_rounds, newest_round, place_of_round, round_of
from tenants import transparency
from tenants.answers import answer_of, plain
from tenants.api import logs
from tenants.api.answer_schemas import answer_serializer
from tenants.api.problems import not_there


class ChainHead(SchedulingView):
    """Where a pool's log ends."""

    @extend_schema(operation_id="chain_show", responses={200: answer_serializer(RoundLogHead)})
    def get(self, request: Request, name: str) -> Response:  # noqa: ARG002 - DRF's signature
        """Show the signed head of a pool's log, and the keys that sign it."""
        log = transparency.round_log(self.pool(name).name)
        with logs.log_scope():
            head = answer_of(RoundLogHead, logs.log_head(log), round=newest_round(log))
            return Response(plain(head))


class ChainRecords(SchedulingView):
    """What a pool's log says of rounds."""

    query: ClassVar[tuple[str, ...]] = ("first", "last")

    @extend_schema(
        operation_id="chain_records",
        responses=logs.RECORDS,
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
            return _page(log, first, last)


class ChainInclusion(SchedulingView):
    """That a round is in a pool's log."""

    query: ClassVar[tuple[str, ...]] = ("round", "size")

    @extend_schema(
        operation_id="chain_inclusion",
        responses=logs.INCLUSION,
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
            return logs.inclusion_answer(request, log, place, "round")


class ChainConsistency(SchedulingView):
    """That a pool's log only grew."""

    query: ClassVar[tuple[str, ...]] = ("first", "second")

    @extend_schema(
        operation_id="chain_consistency",
        responses=logs.CONSISTENCY,
        parameters=[logs.FIRST, logs.SECOND],
    )
    def get(self, request: Request, name: str) -> Response:
        """Prove that the log of `second` entries begins with that of `first` (RFC 6962)."""
        log = transparency.round_log(self.pool(name).name)
        with logs.log_scope():
            return logs.consistency_answer(request, log)


def _page(log: str, first: int, last: int) -> Response:
    entries = logged_rounds(log, first, last, logs.RECORDS_MAX)
    newest = newest_round(log)
    following = None
    if entries and newest is not None:
        after = round_of(entries[-1]).round + 1
        following = after if after <= min(last, newest) else None
    return logs.records_answer(entries, following)
