"""The log of a pool's rounds: its signed head, its records, and their proofs."""

from drf_spectacular.types import OpenApiTypes

from evenshare_core.chain.answers import InclusionProof, RecordPage, RoundLogHead
from scheduling.api.base import SchedulingView
from scheduling.selectors.rounds.log import logged_rounds, newest_round, place_of_round, round_of
from tenants import transparency
from tenants.answers import answer_of
from tenants.api import logs
from tenants.api.base import Who
from tenants.api.problems import not_there
from tenants.api.resources import query


class ChainView(logs.LogView, SchedulingView):
    who = Who.POOL

    def log_of(self, name: str) -> str:
        return transparency.round_log(self.pool(name).name)


class ChainHead(ChainView):
    """Show the signed head of a pool's log, and the keys that sign it."""

    address = "chain/<slug:name>"
    operation = "chain_show"
    answer = RoundLogHead

    def read(self, origin: str) -> RoundLogHead:
        return answer_of(RoundLogHead, logs.log_head(origin), round=newest_round(origin))


class ChainRecords(ChainView):
    """List records of rounds, oldest first, at most 500. For more, pass `next` as `first`."""

    address = "chain/<slug:name>/records"
    operation = "chain_records"
    answer = RecordPage
    parameters = (
        query("first", "The first round; by default the log's first.", OpenApiTypes.INT),
        query("last", "The last round; by default the log's last.", OpenApiTypes.INT),
    )

    def read(self, origin: str) -> RecordPage:
        first = logs.query_number(self.request, "first", 0)
        last = logs.query_number(self.request, "last", logs.NUMBER_MAX)
        entries = logged_rounds(origin, first, last, logs.RECORDS_MAX)
        newest = newest_round(origin)
        following = None
        if entries and newest is not None:
            after = round_of(entries[-1]).round + 1
            following = after if after <= min(last, newest) else None
        return logs.record_page(entries, following)


class ChainInclusion(ChainView):
    """Prove that a round's record is in the log at a given size (RFC 6962, audit path)."""

    address = "chain/<slug:name>/inclusion"
    operation = "chain_inclusion"
    answer = InclusionProof
    parameters = (
        query("round", "The number of a round.", OpenApiTypes.INT, required=True),
        logs.SIZE,
    )

    def read(self, origin: str) -> InclusionProof:
        place = place_of_round(origin, logs.query_number(self.request, "round"))
        if place is None:
            raise not_there()
        return logs.inclusion(self.request, origin, place, "round")


class ChainConsistency(logs.LogConsistency, ChainView):
    address = "chain/<slug:name>/consistency"
    operation = "chain_consistency"
