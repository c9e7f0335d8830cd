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
)
