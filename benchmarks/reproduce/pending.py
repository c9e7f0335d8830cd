"""The claims of papers whose policies are not built yet: named, so that none is forgotten."""

from __future__ import annotations

from benchmarks.reproduce.model import Claim, ClaimVerdict, Findings, Part, Results

Row = tuple[str, str, str]  # the section, the claim, the paper's figure

UNISCHED: tuple[Row, ...] = (
    ("V-B", "Weighted deadline miss rate below 3Sigma, GENIE and Hydra, deadlines alone",
     "1.17 to 4.82x"),
    ("V-B", "Weighted deadline miss rate below theirs, deadlines and best effort mixed",
     "0.95 to 2.77x"),
    ("V-B", "Weighted deadline miss rate below Optimus and Themis", "2.01 to 6.84x"),
    ("V-B", "JCT of best-effort jobs below the others", "1.18 to 4.02x; Optimus 0.67x"),
    ("VI-A", "Longest wait of a job that is profiled, static nodes for it instead",
     "840 s; 2,105 s"),
    ("VI-A", "Estimated durations wrong by about 10 % half-way through training", "10 %"),
    ("VI-A", "Deadlines are kept alike where run times are wrong by up to 40 %", "said"),
    ("VI-B", "A plan for the next leases is made in time", "under 10 s"),
    ("VI-C", "Weighted deadline miss rate below Chronus", "5.2 points"),
)  # fmt: skip
MARKET: tuple[Row, ...] = (
    ("5.2", "Revenue above BatchSche, Gandiva_fair and HiveD, by number of jobs",
     "1.58x, 1.24x, 1.35x"),
    ("5.2", "Revenue above theirs, by number of servers", "1.63x, 1.22x, 1.46x"),
    ("5.2", "Revenue over that of the best plan made afterwards, in small cases", "above 0.6"),
    ("5.2", "Revenue follows what tenants bring in (revenue fairness)", "0.71 to 0.80"),
    ("5.2", "Makespan below Gandiva_fair and HiveD", "0.83x, 0.67x"),
    ("5.2", "One job is scheduled quickly on a laptop", "1.56 s"),
)  # fmt: skip


def _part(name: str, title: str, source: str, why: str, rows: tuple[Row, ...]) -> Part:
    claims = [
        Claim(place, text, paper, "-", ClaimVerdict.NOT_RUN, why) for place, text, paper in rows
    ]

    def judge(_: Results) -> Findings:
        return Findings(claims)

    return Part(name, title, source, "nothing; the policy comes with a later version.", (), judge)


PARTS = (
    _part(
        "unisched",
        "UniSched: deadlines",
        "UniSched: A Unified Scheduler for Deep Learning Training Jobs With Different User Demands,"
        " IEEE TC 2024",
        "needs policy `unisched`",
        UNISCHED,
    ),
    _part(
        "posted_price",
        "Astraea-online: a market",
        "Online Scheduling of Distributed Machine Learning Jobs for Incentivizing Sharing in"
        " Multi-Tenant Systems, IEEE TC 2022",
        "needs policy `posted_price`",
        MARKET,
    ),
)
