"""Texts of the front page: sign-in buttons, the pool's figures, a short tour."""

from __future__ import annotations

from dataclasses import dataclass

from django.urls import reverse

from billing.selectors.totals import MovedCredits
from evenshare_core.fairness.rho import standing
from portal.charts.figures import (
    apportion,
    credits_text,
    duration,
    gpu_hours,
    percent,
    plural,
    ratio,
    thousands,
)
from portal.charts.notes import LineItem, Link, Note, Stat
from scheduling.selectors.pools.lines import PoolFacts, PoolSoFar


@dataclass(frozen=True, slots=True)
class DemoSignIn:
    """A sign-in button of the demo."""

    role: str
    title: str
    text: str
    button: str


@dataclass(frozen=True, slots=True)
class TourStop:
    """A stop of the tour: the role that it signs in as, and its page."""

    title: str
    text: str
    role: str
    button: str
    href: str


DEMO_SIGN_INS = (
    DemoSignIn(
        "researcher",
        "Rosa, researcher",
        "A team that borrows much: its quota, its GPUs, its fair share and its credits, in one"
        " glance. Each queued job says why, each running one until when.",
        "Look as Rosa",
    ),
    DemoSignIn(
        "manager",
        "Mara, manager",
        "A team that often lends: what its quota earned while it was idle, who pays for it, and"
        " how soon it is back when a job asks.",
        "Look as Mara",
    ),
    DemoSignIn(
        "operator",
        "Otto, operator",
        "All nodes and all tenants: who is where, what went unused and why, and a certificate"
        " for each round.",
        "Look as Otto",
    ),
)


def front_stats(pool: PoolFacts, so_far: PoolSoFar, moved: MovedCredits) -> list[Stat]:
    """Return the pool's figures: GPUs in use, leases, the least served tenant, credits."""
    to_tenants, to_operator = apportion([moved.to_tenants, moved.to_operator])
    renewals = so_far.terms - so_far.leases
    return [
        Stat(
            "In use now",
            thousands(so_far.used),
            "GPU" if so_far.used == 1 else "GPUs",
            (LineItem("leased", thousands(so_far.used)), LineItem("idle", thousands(so_far.idle))),
            LineItem("in the pool", thousands(so_far.used + so_far.idle)),
        ),
        Stat(
            "Granted so far",
            thousands(so_far.leases),
            "lease" if so_far.leases == 1 else "leases",
            (
                LineItem("leases", thousands(so_far.leases)),
                LineItem("renewals of them", thousands(renewals)),
            ),
            LineItem("terms", thousands(so_far.terms)),
            Note(
                "Leases",
                text=f"A lease holds GPUs for {duration(pool.lease_s)} of pool time; then"
                " a round renews it or gives the GPUs to whoever is further below its fair share.",
            ),
        ),
        Stat(
            _least_title(so_far.least_rho),
            percent(so_far.least_rho),
            "received",
            (
                LineItem("received", f"{gpu_hours(so_far.least_received_gpu_s)} GPU-h"),
                LineItem("fair share", f"{gpu_hours(so_far.least_deserved_gpu_s)} GPU-h"),
            ),
            LineItem("received \N{DIVISION SIGN} fair share: rho", ratio(so_far.least_rho)),
            Note(
                "The tenant that received the least of its fair share",
                text="rho: GPU-time received over its fair share, since the pool began. Whoever"
                " has the lowest is served first, so that it comes back to 1.00.",
            ),
        ),
        Stat(
            "Moved so far",
            credits_text(moved.total),
            "credits",
            (
                LineItem("to tenants that lent", credits_text(to_tenants)),
                LineItem("to the operator", credits_text(to_operator)),
            ),
            LineItem("paid by borrowers", credits_text(moved.total)),
            Note(
                "Settled payments for borrowed GPU-time",
                text="Once an hour of pool time, what borrowers owe for the hour is paid to those"
                " whose quota stood idle, to the last digit.",
                links=(Link("Ledger", reverse("ledger")),),
            ),
        ),
    ]


def tour(
    pool: PoolFacts,
    jobs: str,
    *,
    bidding: str = "",
    lender: str = "",
    deadlines: str = "",
    cluster: str = "",
) -> tuple[TourStop, ...]:
    """Return the stops in order.

    Optional stops: `bidding` is a pool whose jobs bid. `lender` is the tenant that lends there by
    offers, if a sign-in button of it exists. `deadlines` is a pool whose jobs have deadlines,
    `cluster` a pool on the demo's Slurm cluster.
    """
    stops = list(_stops(pool, jobs))
    if bidding:
        stops.append(_bidding_stop(bidding))
    if bidding and lender:
        stops.append(_offers_stop(bidding, lender))
    if deadlines and jobs:
        stops.append(_deadlines_stop(deadlines, jobs))
    if cluster:
        stops.append(_cluster_stop(cluster))
    return tuple(stops)


def _offers_stop(pool: str, lender: str) -> TourStop:
    return TourStop(
        "Revoke an offer",
        "That team names its floors: one offer lends at nearly any price, one in a hurry alone."
        " Revoke one by a click: from the next round on its idle GPUs are kept, and what is lent"
        " comes back when its terms end.",
        "manager",
        "Mara's offers",
        f"{reverse('sharing', args=[lender])}?pool={pool}",
    )


def _deadlines_stop(pool: str, jobs: str) -> TourStop:
    return TourStop(
        "Ask for an end by a time",
        "Jobs here say by when they must be done. A round answers each: planned, with its leases,"
        " or refused, with what is in the way. Every three minutes more is asked for than there"
        " is, and plans move.",
        "researcher",
        "Rosa's deadlines",
        f"{jobs}?pool={pool}",
    )


def _cluster_stop(pool: str) -> TourStop:
    return TourStop(
        "Run on a Slurm cluster",
        "Five nodes on this machine, whose GPUs are fake and whose jobs are real: each lease is a"
        " job of Slurm's on the very nodes that the round chose. Leases last 20 seconds, so jobs"
        " checkpoint, make way, and go on elsewhere while you look.",
        "operator",
        "Its nodes",
        reverse("pool", args=[pool]),
    )


def _bidding_stop(pool: str) -> TourStop:
    return TourStop(
        "Watch a price clear",
        "Teams say what their jobs are worth. Every three minutes some are in a hurry: the price"
        " rises, who is patient is refused and sees the price that it would have needed, and the"
        " team that lends earns.",
        "operator",
        "Its prices",
        reverse("prices", args=[pool]),
    )


def _stops(pool: PoolFacts, jobs: str) -> tuple[TourStop, ...]:
    rounds = reverse("round-list", args=[pool.name])
    last = rounds if pool.number is None else reverse("round", args=[pool.name, pool.number])
    return (
        TourStop(
            "See who is where",
            f"{plural(pool.nodes, 'node')}, {plural(pool.gpus, 'GPU')}, drawn as boxes of leases."
            " The jobs are those"
            " of a real cluster on a Friday in October 2017, replayed.",
            "operator",
            "The pool",
            reverse("pool", args=[pool.name]),
        ),
        TourStop(
            "Read one decision",
            "Who was served, in which order, by which numbers; who was not, and why; and which"
            " promises held.",
            "operator",
            "The last round",
            last,
        ),
        TourStop(
            "Be a tenant with queued jobs",
            "Four questions in one glance, and the queued jobs with what would help them. Its name"
            " is ours; the hash beside it is all that the trace tells of a team.",
            "researcher",
            "Rosa's overview",
            reverse("front"),
        ),
        TourStop(
            "Follow one job",
            "Its leases, own and borrowed GPUs, price and charge, on one clock.",
            "researcher",
            "Rosa's jobs",
            jobs,
        ),
        TourStop(
            "Follow the money",
            "What borrowers paid is what lenders earned, transfer by transfer.",
            "operator",
            "The ledger",
            reverse("ledger"),
        ),
    )


def _least_title(rho: float | None) -> str:
    """Return a title that compares the lowest rho with the fair share."""
    if rho is None or standing(rho) == "below":
        return "Furthest below its fair share"
    return f"The least served tenant is {standing(rho)} its fair share"
