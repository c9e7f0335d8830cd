"""The cases and formulas of docs/recompute/charges.md give the same charges as the core."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

import pytest

from evenshare_core.domain.entitlements import Entitlement, Mode
from evenshare_core.money.fixed_point import to_text
from evenshare_core.money.revenue.records import Event
from evenshare_core.money.revenue.terms import Sweep
from tests.recompute.charges import (
    HOUR,
    OPERATOR,
    Piece,
    charge,
    charged_until,
    lendable,
    split,
    weights,
)

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "recompute" / "charges.md"


def table(first: str) -> list[list[str]]:
    """Return the rows of the document's table whose first column has this heading."""
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    begin = next(at for at, line in enumerate(lines) if line.startswith(f"| {first} |"))
    rows = []
    for line in lines[begin + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


class TestDocument:
    @pytest.mark.parametrize("row", table("borrowed"), ids=" ".join)
    def test_charges_match_table(self, row: list[str]) -> None:
        *factors, micro, carried = map(int, row)
        assert charge(*factors) == (micro, carried)

    @pytest.mark.parametrize("row", table("began_us"), ids=" ".join)
    def test_end_of_charged_time_matches_table(self, row: list[str]) -> None:
        began, due, late, rounds, asked, ends, until = row
        asked_us = None if asked == "-" else int(asked)
        instants = [int(at) for at in rounds.split()]
        held = (int(began), int(ends))
        assert charged_until(held, int(due), int(late), instants, asked_us) == int(until)

    @pytest.mark.parametrize("row", table("charge_micro"), ids=" ".join)
    def test_splits_match_table(self, row: list[str]) -> None:
        pieces: list[Piece] = []
        for piece in row[1].split(", "):
            gpus, span_us = piece.split(" for ")
            pieces.append((dict(enumerate(map(int, gpus.split(";")))), int(span_us)))
        earned = split(int(row[0]), weights(pieces))
        assert [earned.get(who, 0) for who in range(4)] == [int(one) for one in row[2].split(";")]


class Life:
    """A pool of one GPU type with random leases and random changes of quotas.

    `pieces` are the GPUs that each lender lends in each step.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)  # noqa: S311 - a pool, not a secret
        self.at_us, self.events = 0, list[Event]()
        self.quotas: dict[int, Entitlement] = {}
        self.capacity = 0
        self.own: dict[int, tuple[int, int]] = {}  # tenant and own GPUs of each lease
        self.pieces: list[tuple[int, dict[int, int]]] = []
        self.entitle()

    def tell(
        self, kind: str, lease: int = 0, tenant: int = 0, term: int = 0, **data: object
    ) -> None:
        self.events.append(
            Event(len(self.events) + 1, kind, self.at_us, lease, lease, tenant, term, data)
        )

    def entitle(self) -> None:
        self.quotas = {
            tenant: Entitlement(
                tenant, "gpu", self.rng.randrange(9), self.rng.choice(list(Mode)), None,
                self.rng.choice((None, 0, 2)),
            )
            for tenant in (1, 2, 3)
        }  # fmt: skip
        self.capacity = sum(row.gpus for row in self.quotas.values()) + self.rng.randrange(4)
        quotas = {row.tenant: (row.gpus, row.lends_most) for row in self.quotas.values()}
        self.tell("entitled", capacity=self.capacity, gpu_type="gpu", quotas=quotas)

    def note(self) -> None:
        own = dict.fromkeys(self.quotas, 0)
        for tenant, gpus in self.own.values():
            own[tenant] += gpus
        lent = {
            row.tenant: lendable(row.gpus, row.mode.value, row.lend_limit, own[row.tenant])
            for row in self.quotas.values()
        }
        lent[OPERATOR] = max(0, self.capacity - sum(row.gpus for row in self.quotas.values()))
        self.pieces.append((self.at_us, lent))

    def pieces_of(self, since_us: int, until_us: int) -> list[Piece]:
        ends = [at_us for at_us, _ in self.pieces[1:]] + [until_us]
        return [
            (lent, min(end_us, until_us) - max(at_us, since_us))
            for (at_us, lent), end_us in zip(self.pieces, ends, strict=True)
            if min(end_us, until_us) > max(at_us, since_us)
        ]


LEASE, LATE = 900_000_000, 20_000_000


class Held(NamedTuple):
    """A finished term; `ruled` means that the rule about late rounds existed at its start."""

    lease: int
    number: int
    borrowed: int
    price_micro: int
    began_us: int
    ends_us: int
    ruled: bool


def recomputed(
    life: Life, held: list[Held]
) -> dict[tuple[int, int], tuple[int, int, dict[int, int]]]:
    """Return, for each term, its charge, the operator's part, and the income of each lender."""
    rounds = [event.at_us for event in life.events if event.kind in ("granted", "renewed")]
    rounds.append(life.at_us)  # the time of the last sweep
    carried: dict[int, int] = {}
    terms = {}
    for term in held:
        until_us = term.ends_us
        if term.ruled:
            due_us = term.began_us + LEASE
            until_us = charged_until((term.began_us, until_us), due_us, LATE, rounds, None)
        factors, rest = (term.borrowed, term.price_micro), carried.get(term.lease, 0)
        amount, carried[term.lease] = charge(*factors, until_us - term.began_us, rest)
        full, _ = charge(*factors, term.ends_us - term.began_us, rest)
        pieces = life.pieces_of(term.began_us, term.ends_us)
        earned = split(full, weights(pieces)) if term.borrowed else {}
        terms[term.lease, term.number] = (amount, full - amount, earned)
    return terms


class TestCore:
    @pytest.mark.parametrize("seed", range(30))
    def test_charges_and_incomes_match_document(self, seed: int) -> None:
        """The document's formulas recompute each term that a sweep of the core closes."""
        life, held = Life(seed), list[Held]()
        for lease in range(1, 30):
            tenant, own, borrowed = life.rng.randint(1, 3), life.rng.randrange(3), lease % 3
            price = to_text(life.rng.choice((0, 360, 414_214, 1_000_001)))
            term = {"gpu_type": "gpu", "own": own, "borrowed": borrowed, "price": price}
            for number in range(1, life.rng.randint(1, 3) + 1):
                began_us = life.at_us
                rule = {"expires_us": began_us + LEASE, "late_us": LATE} if lease % 5 else {}
                kind = "granted" if number == 1 else "renewed"
                life.tell(kind, lease, tenant, number, **term, **rule)
                if number == 1:
                    life.tell("started", lease, tenant, number)
                life.own[lease] = (tenant, own)
                life.note()
                life.at_us += life.rng.choice((1, 1_000_000, 899_999_999, LEASE + LATE, HOUR))
                if life.rng.random() < 0.3:
                    life.entitle()
                    life.note()
                    life.at_us += 7_000_001
                micro = int(price.replace(".", ""))
                held.append(Held(lease, number, borrowed, micro, began_us, life.at_us, bool(rule)))
            if lease % 4:  # the other leases continue
                life.tell("ended", lease, tenant, number, started=True)
                del life.own[lease]
                life.note()
        terms = recomputed(life, held)
        sweep = Sweep()
        closed = [row for event in life.events for row in sweep.feed(event)]
        closed += sweep.rest(life.at_us)
        assert len(closed) > 30
        assert any(row.borne_micro for row in closed)
        for row in closed:
            amount, borne, earned = terms[row.lease, row.term]
            assert (row.amount_micro, row.borne_micro) == (amount, borne)
            assert {one.lender: one.amount_micro for one in row.shares} == earned
