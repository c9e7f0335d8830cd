"""A round with its decision, as a viewer may see it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from evenshare_core.domain.cluster import Placement, gpus_by_node
from evenshare_core.domain.deadlines import DeadlineAnswer
from evenshare_core.domain.decision import Decision, End, Grant, Preemption, Renew, Skip, Solve
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.reasons import Reason
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.money.fixed_point import to_credits
from evenshare_core.policies.job_reasons import Turns, group_numbers, turns_of
from evenshare_core.policies.registry import model_text
from evenshare_core.units import ONE_MILLI, SECOND_US
from scheduling.models import Job, Node, Round
from scheduling.selectors.deadlines.round_answers import (
    RoundAnswers,
    answer_order,
    round_answers,
)
from scheduling.selectors.jobs.reasons import preemption_text
from scheduling.selectors.jobs.refs import JobRef
from scheduling.selectors.rounds.following import Following, following_seen
from scheduling.selectors.rounds.lists import nothing_counted
from scheduling.selectors.rounds.promises import DecisionCounts, check_decision
from scheduling.selectors.rounds.replay import certificate_same
from scheduling.selectors.rounds.rows import (
    EarlyEnd,
    EndRow,
    PickRow,
    RoundPrice,
    RowSlice,
    SeenRows,
    SkipGroup,
    SkipRow,
)
from scheduling.selectors.rounds.shares import RoundShare, round_shares
from scheduling.selectors.rounds.states import state_damages
from scheduling.selectors.rounds.stored import (
    ROW,
    STATE,
    Damage,
    DamagedRoundError,
    ReplayError,
    decode_round,
    round_bytes,
    row_damages,
    with_seals,
)
from scheduling.selectors.sharing.trades import TradeRow, trades_of_round
from scheduling.selectors.visibility import Visibility, VisibleTenant
from tenants.answers import Answer, Hidden, answer_of

# The maximum number of rows per table of a round; the viewer's own rows are always shown.
LIMIT = 200
NAMED_JOBS = 5
# Only the tenant sees the numbers of these reasons.
PRIVATE = (
    Reason.PRICE_ABOVE_MAX,
    Reason.PRICE_ABOVE_VALUE,
    Reason.PLANNED_LATER,
    Reason.BUDGET,
    Reason.QUOTA_LIMIT,
)


@dataclass(frozen=True, slots=True)
class ShareSums:
    """The GPUs of all grants, or of all renewals."""

    own: int
    borrowed: int

    @property
    def gpus(self) -> int:
        """Own and borrowed GPUs."""
        return self.own + self.borrowed


class RoundDecision(Answer, frozen=True):
    """The stored decision; sums, counts and `largest_free` include rows that you may not see.

    `solve`: the solver's result, and `model`: its program. `has_ideals`: the program divides types
    of GPUs. `again`: whether its certificate is the same when computed again, see
    `certificate_same`. `seen`: the number of visible rows of each table.
    """

    grants: Hidden[tuple[PickRow, ...]]
    renewals: Hidden[tuple[PickRow, ...]]
    ends: Hidden[tuple[EndRow, ...]]
    counts: dict[str, int]
    preemptions: tuple[EarlyEnd, ...]
    skips: tuple[SkipGroup, ...]
    answers: RoundAnswers
    prices: tuple[RoundPrice, ...]
    checked: Hidden[DecisionCounts]
    granted: Hidden[ShareSums]
    renewed: Hidden[ShareSums]
    ended_gpus: Hidden[int]
    moved: Hidden[int]
    early: Hidden[int]
    largest_free: Hidden[int]
    smallest_gang: Hidden[int | None]
    size: Hidden[int]
    solve: Hidden[Solve | None]
    model: Hidden[str]
    has_ideals: Hidden[bool]
    again: Hidden[bool | None]
    seen: Hidden[dict[str, SeenRows]]


@dataclass(frozen=True, slots=True)
class RoundView:
    """A round as a viewer may see it; `decision` is None if its bytes cannot be read.

    `damages`: the parts that differ from what was written. If the row is damaged, its counts and
    shares are not shown. `following`: whether it starts from the state that the previous round
    left; only operators see why not.
    """

    round: Round
    shares: tuple[RoundShare, ...]
    previous: Round | None
    next: Round | None
    decision: RoundDecision | None
    why_not: str = ""
    damages: tuple[Damage, ...] = ()
    trades: tuple[TradeRow, ...] = ()
    following: Following | None = None

    @property
    def is_row_damaged(self) -> bool:
        """Whether counts, shares, hashes and certificate differ from what was written."""
        return any(damage.part == ROW for damage in self.damages)


def round_view(
    pool_id: int, number: int, visibility: Visibility, rows: RowSlice | None = None
) -> RoundView | None:
    """Return a round with its stored decision and its trades, or None. At most five queries.

    Without `rows`, each table has at most `LIMIT` rows, and all rows of the viewer's tenants.
    """
    rounds = with_seals(Round.objects.filter(pool_id=pool_id))
    near = {row.number: row for row in rounds.filter(number__in=range(number - 1, number + 2))}
    if number not in near:
        return None
    round_ = near[number]
    decision, why_not, following = None, "", None
    damages = (*row_damages(round_), *state_damages(round_))
    try:
        raw = round_bytes(round_)
        snapshot, decided = decode_round(round_, raw)
        following = following_seen(round_, (snapshot, decided), near.get(number - 1), visibility)
        if all(damage.part == STATE for damage in damages):
            size = sum(map(len, raw))
            decision = _RowReader(round_, snapshot, decided, visibility, rows).read(size)
    except DamagedRoundError as error:
        damages += error.damages
    except ReplayError as error:
        why_not = str(error)
    if damages and decision is None:
        why_not = str(DamagedRoundError(number, damages))
    is_row_damaged = any(damage.part == ROW for damage in damages)
    if is_row_damaged:
        _blank(round_)
    return RoundView(
        round=round_,
        shares=round_shares(round_.shares, visibility),
        previous=near.get(number - 1),
        next=near.get(number + 1),
        decision=decision,
        why_not=why_not,
        damages=damages,
        trades=trades_of_round(pool_id, number, visibility),
        following=None if is_row_damaged else following,
    )


def _blank(round_: Round) -> None:
    """Clear the fields of a damaged row: they must neither be shown nor make the page fail."""
    round_.summary, round_.shares, round_.superseded = nothing_counted(), [], []
    round_.certificate, round_.fallback = None, ""


def _sum(terms: Iterable[Grant | Renew]) -> ShareSums:
    rows = tuple(terms)
    return ShareSums(sum(row.own for row in rows), sum(row.borrowed for row in rows))


@dataclass
class _RowReader:
    """Converts a decision to rows that one viewer may see."""

    round: Round
    snapshot: Snapshot
    decision: Decision
    visibility: Visibility
    rows: RowSlice | None = None
    jobs: dict[int, JobRef] = field(default_factory=dict)
    nodes: dict[int, str] = field(default_factory=dict)
    lost: dict[tuple[str, int], str] = field(default_factory=dict)
    early: dict[int, Preemption] = field(default_factory=dict)
    seen: dict[str, SeenRows] = field(default_factory=dict)

    def read(self, size: int) -> RoundDecision:
        """Return the rows; `size` is the number of bytes stored."""
        decision = self.decision
        self.lost = {(row["item"], row["id"]): row["why"] for row in self.round.superseded}
        grants = self._cut("grants", decision.grants)
        renewals = self._cut("renewals", decision.renewals)
        ends = self._cut("ends", decision.ends)
        answers = self._cut("answers", self._answers())
        leases = {lease.id: lease for lease in self.snapshot.leases}
        granted = {row.job for row in decision.grants}
        placements: list[Placement] = [row.placement for row in grants]
        placements += [leases[row.lease].placement for row in (*renewals, *ends)]
        self.early = {row.lease: row for row in decision.preemptions}
        self.lengths = {row.job: row.lease_us / SECOND_US for row in decision.lengths}
        self._name(placements, [*grants, *renewals, *ends, *answers])
        rows = tuple(self._end(row, leases[row.lease], is_moved=row.job in granted) for row in ends)
        return RoundDecision(
            grants=tuple(self._pick(row, row.placement) for row in grants),
            renewals=tuple(self._pick(row, leases[row.lease].placement) for row in renewals),
            ends=rows,
            preemptions=tuple(row.early for row in rows if row.early),
            skips=self._skips(),
            prices=self._prices(),
            answers=round_answers(
                decision.answers,
                answers,
                self.visibility,
                self.jobs,
                number=self.round.number,
                at=self.round.at,
                dated=len(self.snapshot.deadlines),
            ),
            checked=check_decision(self.snapshot, decision),
            counts={
                "grants": len(decision.grants),
                "renewals": len(decision.renewals),
                "ends": len(decision.ends),
            },
            granted=_sum(decision.grants),
            renewed=_sum(decision.renewals),
            ended_gpus=sum(leases[row.lease].gpus for row in decision.ends),
            moved=sum(row.job in granted for row in decision.ends),
            early=len(decision.preemptions),
            largest_free=self._largest_free(),
            smallest_gang=self._smallest_gang(),
            size=size,
            solve=decision.solve,
            model=model_text(self.snapshot.policy, self.snapshot.options),
            has_ideals=bool(decision.ideals),
            again=certificate_same(self.round, self.snapshot, decision),
            seen=self.seen,
        )

    def _answers(self) -> Sequence[DeadlineAnswer]:
        """Return the answers, in the order of their table if only a part of it is shown."""
        answers = self.decision.answers
        return answers if self.rows is None else sorted(answers, key=answer_order)

    def _cut(self, table: str, rows: Sequence[Any]) -> list[Any]:
        """Return the visible rows that are asked for; see `round_view`."""
        own = self.visibility.own
        seen = [row for row in rows if self.visibility.of(row.tenant)]
        self.seen[table] = SeenRows(len(seen), sum(row.tenant in own for row in seen))
        if self.rows is not None:
            return self.rows.of(table, seen, own)
        return seen[:LIMIT] + [row for row in seen[LIMIT:] if row.tenant in own]

    def _name(self, placements: Iterable[Placement], rows: Iterable[Any]) -> None:
        nodes = {node for placement in placements for node, _ in placement}
        self.nodes = dict(Node.objects.filter(id__in=nodes).values_list("id", "name"))
        jobs = {row.job for row in rows if self.visibility.jobs_of(row.tenant)}
        for early in self.decision.preemptions:
            if self.visibility.jobs_of(early.for_tenant):
                jobs.add(early.for_job)
        for skip in self.decision.skips:
            if self.visibility.jobs_of(skip.tenant):
                jobs.update(skip.jobs[:NAMED_JOBS])
        if jobs:
            known = Job.objects.filter(id__in=jobs).values_list("id", "uid", "name")
            self.jobs = {id_: JobRef(uid, name) for id_, uid, name in known}

    def _places(self, placement: Placement) -> tuple[tuple[str, int], ...]:
        return tuple((self.nodes.get(node, "gone"), gpus) for node, gpus in placement)

    def _pick(self, row: Grant | Renew, placement: Placement) -> PickRow:
        granted = isinstance(row, Grant)
        item = ("grant", row.job) if isinstance(row, Grant) else ("renewal", row.lease)
        return PickRow(
            order=row.order,
            granted=granted,
            tenant=self.visibility.known[row.tenant],
            gpu_type=row.gpu_type,
            gpus=row.own + row.borrowed,
            places=self._places(placement),
            tenant_rho=row.key.tenant_rho,
            job_rho=row.key.job_rho,
            note=row.key.note,
            own=row.own,
            borrowed=row.borrowed,
            price=to_credits(row.price_micro),
            job=self.jobs.get(row.job),
            lost=self.lost.get(item, ""),
            lasts_s=self.lengths.get(row.job),
        )

    def _end(self, row: End, lease: Lease, *, is_moved: bool) -> EndRow:
        end = EndRow(
            tenant=self.visibility.known[row.tenant],
            gpu_type=lease.gpu_type,
            gpus=lease.gpus,
            places=self._places(lease.placement),
            reason=row.reason,
            job=self.jobs.get(row.job),
            lost=self.lost.get(("end", row.lease), ""),
            moved=is_moved,
        )
        early = self.early.get(row.lease)
        return end if early is None else replace(end, early=self._early(end, early))

    def _early(self, end: EndRow, early: Preemption) -> EarlyEnd:
        seen = self.visibility.of(early.for_tenant)
        return answer_of(
            EarlyEnd,
            end,
            rule=early.rule.value,
            words=preemption_text(early.rule.value, seen.name if seen else ""),
            for_tenant=seen,
            for_job=self.jobs.get(early.for_job),
            numbers=early.numbers if seen else {},
            superseded=end.lost,
        )

    def _skips(self) -> tuple[SkipGroup, ...]:
        turns = turns_of(self.snapshot, self.decision)
        groups: dict[Reason, list[Skip]] = {}
        for skip in self.decision.skips:
            groups.setdefault(skip.reason, []).append(skip)
        reason_groups = [
            SkipGroup(
                reason=reason,
                jobs=sum(len(skip.jobs) for skip in skips),
                gpus=sum(skip.gpus for skip in skips),
                rows=tuple(
                    self._skip(skip, seen, turns)
                    for skip in skips
                    if (seen := self.visibility.of(skip.tenant))
                ),
            )
            for reason, skips in groups.items()
        ]
        return tuple(sorted(reason_groups, key=lambda group: (-group.jobs, group.reason.value)))

    def _skip(self, skip: Skip, seen: VisibleTenant, turns: Turns) -> SkipRow:
        # A tenant's maximum price and its remaining credit are private.
        private = skip.reason in PRIVATE and not self.visibility.jobs_of(skip.tenant)
        numbers = {} if private else group_numbers(skip, turns)
        named = tuple(self.jobs[job] for job in skip.jobs[:NAMED_JOBS] if job in self.jobs)
        return SkipRow(seen, len(skip.jobs), skip.gpus, numbers, named)

    def _prices(self) -> tuple[RoundPrice, ...]:
        valid = {row.gpu_type: row.price_micro for row in self.snapshot.prices}
        extra = {row.gpu_type: row for row in self.decision.surcharges}
        return tuple(
            RoundPrice(
                gpu_type=row.gpu_type,
                valid=to_credits(valid.get(row.gpu_type, 0)),
                posted=to_credits(row.price_micro),
                used=row.used,
                capacity=row.capacity,
                base=to_credits(row.base_micro),
                theta=Decimal(row.theta_milli) / ONE_MILLI,
                surcharge=to_credits(one.surcharge_micro) if one else None,
                queued=one.queued if one else None,
            )
            for row in self.decision.prices
            for one in (extra.get(row.gpu_type),)
        )

    def _largest_free(self) -> int:
        ended = {end.lease for end in self.decision.ends}
        kept = [lease.placement for lease in self.snapshot.leases if lease.id not in ended]
        used = gpus_by_node((*kept, *(grant.placement for grant in self.decision.grants)))
        free = (node.gpus - used.get(node.id, 0) for node in self.snapshot.nodes)
        return max(free, default=0)

    def _smallest_gang(self) -> int | None:
        waiting = {job for skip in self.decision.skips for job in skip.jobs}
        return min((job.gpus for job in self.snapshot.jobs if job.id in waiting), default=None)
