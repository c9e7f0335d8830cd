"""Rounds of a pool, as the caller may see them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import msgspec

from scheduling.api import schemas
from scheduling.api.base import SchedulingView
from scheduling.selectors.pools.now import idle_gpus
from scheduling.selectors.rounds.bundles import ChainPlace, read_place
from scheduling.selectors.rounds.certificates import CertificateView, view_certificate
from scheduling.selectors.rounds.following import Following
from scheduling.selectors.rounds.lists import rounds_page
from scheduling.selectors.rounds.one_round import RoundDecision, RoundView, round_view
from scheduling.selectors.rounds.shares import RoundShare
from scheduling.selectors.rounds.stored import Damage
from scheduling.selectors.sharing.trades import TradeRow
from scheduling.selectors.visibility import read_visibility
from tenants.answers import Answer, about, answer_of
from tenants.api.base import Who
from tenants.api.problems import not_there
from tenants.api.resources import PAGE, Listed, Page, Shown
from tenants.scopes import site_scope


class RoundRow(Answer, frozen=True):
    """A round in a list."""

    pool: str
    number: int
    at: datetime
    wall_at: datetime
    policy: str
    policy_version: str
    snapshot_sha256: str
    decision_sha256: str
    decide_us: int
    summary: dict[str, Any]


class RoundWhole(RoundRow, frozen=True):
    """A round with its shares and certificate and, while its bytes are kept, its decision.

    If `damages` contains the row, counts are 0, and shares and certificate are left out.
    """

    shares: tuple[RoundShare, ...]
    certificate: CertificateView | None
    decision: Annotated[RoundDecision | None, msgspec.Meta(extra_json_schema={"type": "object"})]
    why_no_decision: str
    damages: tuple[Damage, ...]
    trades: tuple[TradeRow, ...]
    following: Following | None
    bundle: Annotated[str | None, about("null: not sealed, damaged, or no longer kept.")]
    record: ChainPlace | None


class RoundList(Listed, SchedulingView):
    """List the rounds of a pool, newest first."""

    address = "rounds"
    operation = "round_list"
    who = Who.POOL
    row = RoundRow
    about = "A page of rounds."
    parameters = (schemas.POOL, *PAGE)

    def page(self) -> Page:
        facts, limit = self.query_pool(), self.limit
        before = self.before("rounds", facts.id)
        with site_scope():
            page = rounds_page(facts.id, before=before, limit=limit)
        shown = [
            answer_of(RoundRow, row, pool=facts.name, summary=_counts(row.summary))
            for row in page.rows
        ]
        return Page(shown, None if page.older is None else [page.older])


class RoundShow(Shown, SchedulingView):
    """Show a round: shares, certificate, reasons, prices, trades, hashes of its bytes.

    `bundle` is the URL of the data for recomputing the round; `record` is its record in the log.
    """

    address = "rounds/<slug:name>/<int:number>"
    operation = "round_show"
    who = Who.POOL
    answer = RoundWhole
    shows = ("Job.name", "Job.uid", "Profile.name")

    def show(self, name: str, number: int) -> RoundWhole:
        facts = self.pool(name)
        with site_scope():
            visibility = read_visibility(facts.id, self.access)
            view = round_view(facts.id, number, visibility) if number < 2**62 else None
            seen = view_certificate(view.round, visibility) if view else None
            place = read_place(facts.id, number) if view else None
        if view is None:
            raise not_there()
        return _whole(view, seen, place, facts.name)


def _counts(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return a round's summary with the idle GPUs as pages show them, which is never below 0."""
    return {**summary, "idle": idle_gpus(summary)}


def _whole(
    view: RoundView, seen: CertificateView | None, place: ChainPlace | None, pool: str
) -> RoundWhole:
    if seen is not None and view.decision is not None:
        seen = msgspec.structs.replace(seen, same_again=view.decision.again)
    is_kept = place is not None and place.is_kept
    return answer_of(
        RoundWhole,
        view.round,
        pool=pool,
        summary=_counts(view.round.summary),
        shares=view.shares,
        certificate=seen,
        decision=view.decision,
        why_no_decision=view.why_not,
        damages=view.damages,
        trades=view.trades,
        following=view.following,
        bundle=f"/api/v1/rounds/{pool}/{view.round.number}/bundle" if is_kept else None,
        record=place,
    )
