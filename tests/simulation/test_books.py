"""Test that the simulator's books equal the sweep over a live pool's lease events."""

from __future__ import annotations

import random
from typing import Any

import pytest

from evenshare_core.domain.leases import Lease
from evenshare_core.money.fixed_point import to_text
from evenshare_core.money.revenue.records import ClosedTerm, Event
from evenshare_core.money.revenue.terms import Sweep
from evenshare_core.simulation.books import Books, TermRecord
from evenshare_core.units import SECOND_US

TYPES = ("k80", "v100")


class Both:
    """Books and a sweep, which both get the same leases."""

    def __init__(self) -> None:
        self.books, self.sweep = Books(), Sweep()
        self.terms: list[TermRecord] = []
        self.charged: dict[int, int] = {}
        self.earned: dict[int, int] = {}
        self.number = 0

    def entitle(self, at_us: int, gpu_type: str, quotas: dict[int, tuple[int, int | None]]) -> None:
        self.books.entitle(at_us, gpu_type, 40, quotas)
        data = {"gpu_type": gpu_type, "capacity": 40, "quotas": quotas}
        self.feed("entitled", at_us, None, data)

    def grant(self, at_us: int, lease: Lease) -> None:
        self.books.granted(at_us, lease)
        self.feed("granted", at_us, lease, term_data(lease))
        self.feed("started", at_us, lease, {})

    def renew(self, at_us: int, old: Lease, new: Lease) -> None:
        self.books.renewed(at_us, old, new)
        self.feed("renewed", at_us, new, term_data(new))

    def end(self, at_us: int, lease: Lease) -> None:
        self.books.ended(at_us, lease)
        self.feed("ended", at_us, lease, {"started": True})

    def feed(self, kind: str, at_us: int, lease: Lease | None, data: dict[str, Any]) -> None:
        self.number += 1
        who = (lease.id, lease.job, lease.tenant, lease.term) if lease else (0, 0, 0, 0)
        self.close(self.sweep.feed(Event(self.number, kind, at_us, *who, data)))

    def close(self, closed: list[ClosedTerm]) -> None:
        for term in closed:
            charge = term.amount_micro
            assert term.starts_us is not None
            self.terms.append(
                TermRecord(
                    term.lease, term.term, term.own, term.borrowed, term.price_micro,
                    term.starts_us, term.ends_us, charge,
                )
            )  # fmt: skip
            if charge:
                self.charged[term.tenant] = self.charged.get(term.tenant, 0) + charge
                for share in term.shares:
                    before = self.earned.get(share.lender, 0)
                    self.earned[share.lender] = before + share.amount_micro


def term_data(lease: Lease) -> dict[str, Any]:
    return {
        "gpu_type": lease.gpu_type, "own": lease.own, "borrowed": lease.borrowed,
        "price": to_text(lease.price_micro),
    }  # fmt: skip


def drawn(draw: random.Random, lease: int, tenant: int, gpu_type: str, term: int) -> Lease:
    own, borrowed = draw.randrange(4), draw.randrange(3)
    price = draw.choice((0, 1, 250_000, 999_999)) if borrowed else 0
    return Lease(
        lease, lease, tenant, gpu_type, ((1, max(1, own + borrowed)),), 0, 0, term, own, borrowed,
        price,
    )  # fmt: skip


def story(both: Both, seed: int) -> None:
    """Start, renew and end leases at times that often coincide."""
    draw = random.Random(seed)  # noqa: S311 - a seeded story, not a secret
    running: dict[int, Lease] = {}
    at_us = 0
    for step in range(120):
        at_us += draw.choice((0, 0, 1, 7, 10 * SECOND_US, 900 * SECOND_US))
        if step % 40 == 0:
            for gpu_type in TYPES:
                quotas = {
                    tenant: (draw.randrange(9), draw.choice((None, 0, 2))) for tenant in range(1, 5)
                }
                both.entitle(at_us, gpu_type, quotas)
        if running and draw.random() < 0.6:
            old = running.pop(draw.choice(sorted(running)))
            if draw.random() < 0.4:
                both.end(at_us, old)
                continue
            new = drawn(draw, old.id, old.tenant, old.gpu_type, old.term + 1)
            both.renew(at_us, old, new)
        else:
            new = drawn(draw, step + 1, draw.randrange(1, 5), draw.choice(TYPES), 1)
            both.grant(at_us, new)
        running[new.id] = new
    for lease in running.values():
        both.end(at_us + SECOND_US, lease)
    both.close(both.sweep.rest(at_us + SECOND_US))


@pytest.mark.parametrize("seed", range(20))
def test_books_match_sweep_over_lease_events(seed: int) -> None:
    both = Both()
    story(both, seed)
    assert not both.sweep.anomalies
    assert sorted(both.books.terms) == sorted(both.terms)
    assert both.books.charged == both.charged
    assert both.books.earned == both.earned
    assert both.charged
