"""Texts of the front page: sign-in buttons, the pool's figures, a short tour."""

from dataclasses import dataclass
from decimal import Decimal

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

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
class TourStop:
    """A card of the front page: the role that it signs in as, and its page if it is a stop."""

    title: str
    text: str
    role: str
    button: str
    href: str = ""


def demo_sign_ins() -> tuple[TourStop, ...]:
    """Return the cards with the sign-in buttons."""
    return (
        TourStop(
            _("Rosa, researcher"),
            _(
                "A team that borrows a lot: its quota, GPUs, fair share and credits on one page."
                " Each queued job shows the reason, each running job the end of its lease."
            ),
            "researcher",
            _("Log in as Rosa"),
        ),
        TourStop(
            _("Mara, manager"),
            _(
                "A team that often lends: the income from its idle quota, who paid, and how soon it"
                " gets its GPUs back."
            ),
            "manager",
            _("Log in as Mara"),
        ),
        TourStop(
            _("Otto, operator"),
            _(
                "All nodes and tenants: the GPU map, idle GPUs and why, and a certificate for each"
                " round."
            ),
            "operator",
            _("Log in as Otto"),
        ),
    )


def front_stats(pool: PoolFacts, so_far: PoolSoFar, moved: tuple[Decimal, Decimal]) -> list[Stat]:
    """Return the pool's figures: GPUs in use, leases, the least served tenant, credits."""
    to_tenants, to_operator = apportion(moved)
    return [
        Stat(
            _("In use now"),
            thousands(so_far.used),
            ngettext("GPU", "GPUs", so_far.used),
            (
                LineItem(_("leased"), thousands(so_far.used)),
                LineItem(_("idle"), thousands(so_far.idle)),
            ),
            LineItem(_("in the pool"), thousands(so_far.used + so_far.idle)),
        ),
        _leases(pool, so_far),
        Stat(
            _least_title(so_far.least_rho),
            percent(so_far.least_rho),
            _("received"),
            (
                LineItem(
                    _("received"),
                    f"{gpu_hours(so_far.least_received_gpu_s)} GPU-h",
                ),
                LineItem(
                    _("fair share"),
                    f"{gpu_hours(so_far.least_deserved_gpu_s)} GPU-h",
                ),
            ),
            LineItem(_("received \N{DIVISION SIGN} fair share: rho"), ratio(so_far.least_rho)),
            Note(
                _("The tenant that received the least of its fair share"),
                text=_(
                    "rho = GPU-time received ÷ fair share. The tenant with the lowest rho is"
                    " served first, until it is back at 1.00."
                ),
            ),
        ),
        Stat(
            _("Moved so far"),
            credits_text(sum(moved)),
            _("credits"),
            (
                LineItem(_("to tenants that lent"), credits_text(to_tenants)),
                LineItem(_("to the operator"), credits_text(to_operator)),
            ),
            LineItem(_("paid by borrowers"), credits_text(sum(moved))),
            Note(
                _("Settled payments for borrowed GPU-time"),
                text=_(
                    "Every hour of pool time, borrowers pay the owners of the idle quota that"
                    " they used, to the micro-credit."
                ),
                links=(Link(_("Ledger"), reverse("ledger")),),
            ),
        ),
    ]


def _leases(pool: PoolFacts, so_far: PoolSoFar) -> Stat:
    renewals = so_far.terms - so_far.leases
    return Stat(
        _("Granted so far"),
        thousands(so_far.leases),
        ngettext("lease", "leases", so_far.leases),
        (
            LineItem(_("leases"), thousands(so_far.leases)),
            LineItem(_("of these, renewals"), thousands(renewals)),
        ),
        LineItem(_("terms"), thousands(so_far.terms)),
        Note(
            _("Leases"),
            text=_(
                "A lease holds GPUs for {time} of pool time; then a round renews it or gives"
                " the GPUs to a tenant further below its fair share."
            ).format(time=duration(pool.lease_s)),
        ),
    )


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
    offers, if it has a sign-in button. `deadlines` is a pool whose jobs have deadlines, `cluster` a
    pool on the demo's Slurm cluster.
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
        _("Revoke an offer"),
        _(
            "This team sets floor prices: one offer lends at nearly any price, another only at high"
            " prices. Revoke one: from the next round on its idle GPUs are kept, and lent GPUs"
            " return when their terms end."
        ),
        "manager",
        _("Mara's offers"),
        f"{reverse('sharing', args=[lender])}?pool={pool}",
    )


def _deadlines_stop(pool: str, jobs: str) -> TourStop:
    return TourStop(
        _("Set a deadline"),
        _(
            "Jobs here have deadlines. A round answers each: planned, with its leases, or refused,"
            " with the reason. Every three minutes demand exceeds the GPUs, and plans change."
        ),
        "researcher",
        _("Rosa's deadlines"),
        f"{jobs}?pool={pool}",
    )


def _cluster_stop(pool: str) -> TourStop:
    return TourStop(
        _("Run on a Slurm cluster"),
        _(
            "Five nodes on this machine, with fake GPUs and real jobs: each lease is a Slurm job on"
            " the nodes that the round chose. Leases last 20 seconds, so you can watch jobs"
            " checkpoint, stop and resume on other nodes."
        ),
        "operator",
        _("Nodes of the cluster"),
        reverse("pool", args=[pool]),
    )


def _bidding_stop(pool: str) -> TourStop:
    return TourStop(
        _("Watch a price clear"),
        _(
            "Teams declare the value of their jobs. Every three minutes some bid high: the price"
            " rises, low bids are refused and see the price that they need, and lenders earn."
        ),
        "operator",
        _("Prices of the pool"),
        reverse("prices", args=[pool]),
    )


def _stops(pool: PoolFacts, jobs: str) -> tuple[TourStop, ...]:
    rounds = reverse("round-list", args=[pool.name])
    last = rounds if pool.number is None else reverse("round", args=[pool.name, pool.number])
    return (
        TourStop(
            _("See the GPU map"),
            _(
                "{nodes}, {gpus}; each box is a lease. The jobs are a replay of a real cluster on a"
                " Friday in October 2017."
            ).format(nodes=plural(pool.nodes, "node"), gpus=plural(pool.gpus, "GPU")),
            "operator",
            _("The pool"),
            reverse("pool", args=[pool.name]),
        ),
        TourStop(
            _("Read one decision"),
            _(
                "Which jobs were served, in which order and by which numbers; which were not, and"
                " why; and which promises held."
            ),
            "operator",
            _("The last round"),
            last,
        ),
        TourStop(
            _("Be a tenant with queued jobs"),
            _(
                "Quota, use, fair share and credits on one page, and how to start the queued jobs"
                " sooner. The trace identifies teams only by a hash; we made up the names."
            ),
            "researcher",
            _("Rosa's overview"),
            reverse("front"),
        ),
        TourStop(
            _("Follow one job"),
            _("Its leases, own and borrowed GPUs, price and charge, on one clock."),
            "researcher",
            _("Rosa's jobs"),
            jobs,
        ),
        TourStop(
            _("Follow the money"),
            _("Borrowers' payments and lenders' income match, transfer by transfer."),
            "operator",
            _("The ledger"),
            reverse("ledger"),
        ),
    )


def _least_title(rho: float | None) -> str:
    """Return a title that compares the lowest rho with the fair share."""
    if rho is None or standing(rho) == "below":
        return _("Furthest below its fair share")
    if standing(rho) == "at":
        return _("The least served tenant is at its fair share")
    return _("The least served tenant is above its fair share")
