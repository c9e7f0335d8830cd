"""Claims of OEF's proofs, sections 4 and 5, and of its experiment with four tenants, 6.2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evenshare_research.reproduce.model import (
    Claim,
    Findings,
    Part,
    ReportChart,
    Results,
    verdict_of,
)
from evenshare_research.reproduce.oef import SOURCE
from evenshare_research.reproduce.properties import CASES, FOUR, TOLERANCE, four_run, proofs_run
from evenshare_research.reproduce.shown import bars, listed, number, signed

_FOUR, _PROOFS = four_run(), proofs_run()


# ---- section 6.2 ----


def four_claims(four: Mapping[str, Any]) -> list[Claim]:
    """Return claims of 6.2 from the result of `properties.four_tenants`."""
    honest = four["four"]
    equal = all(_alike(four[name]) for name in ("four", "three"))
    own = {lie: after / honest[0] - 1 for lie, (after, _) in four["lies"].items()}
    total = {lie: after / sum(honest) - 1 for lie, (_, after) in four["lies"].items()}
    lost = min(total.values())
    two = [value / four["two_types"][2] for value in four["two_types"][:2]]
    gains = four["over_max_min"]
    most = max(gains)
    incentive = min(gains) >= 1 - TOLERANCE
    no_envy = four["envied"] <= 1 + TOLERANCE
    return [
        Claim.of(
            "6.2.1",
            "Non-cooperative: all four tenants progress alike, and the three that stay",
            "alike",
            f"{listed(honest)}; {listed(four['three'])}",
            held=equal,
        ),
        Claim.of(
            "6.2.1",
            "Who overstates its speedups has less than before",
            "less",
            _by_lie(own),
            held=all(change < -TOLERANCE for change in own.values()),
        ),
        Claim(
            "6.2.1",
            "A lie lowers the total by around 10 %",
            "-10 %",
            _by_lie(total),
            verdict_of(lost <= -0.075, in_direction=lost < -0.01),
            "by how much the user lies is not told",
        ),
        Claim.of(
            "6.2.3",
            "Each of two job types of a tenant has half of what others have",
            "half",
            listed(two, 3),
            held=all(abs(value - 0.5) <= 0.005 for value in two),
        ),
        Claim(
            "6.2.2",
            "Cooperative: everybody has at least what max-min gives, the fastest 1.16x",
            "1 to 1.16x",
            ", ".join(f"{number(gain, 3)}x" for gain in gains),
            verdict_of(
                incentive and abs(most - 1.16) <= 0.04 and most == gains[-1], in_direction=incentive
            ),
        ),
        Claim(
            "6.2.4",
            "Nobody has more of another's shares; user 4 has 1.58x of what user 1's would give",
            "1.58x",
            f"{number(four['envy'], 2)}x; at most {number(four['envied'], 3)} of the own for"
            " anybody",
            verdict_of(no_envy and abs(four["envy"] / 1.58 - 1) <= 0.05, in_direction=no_envy),
        ),
    ]


def _by_lie(changes: Mapping[str, float]) -> str:
    return "; ".join(f"by {signed(float(lie) - 1)}: {signed(it)}" for lie, it in changes.items())


def _alike(values: list[float]) -> bool:
    return max(values) - min(values) <= TOLERANCE * max(values)


def _four(results: Results) -> Findings:
    four = results[_FOUR]
    gains = [round(gain, 4) for gain in four["over_max_min"]]
    shown = bars("cooperative OEF", list(range(1, len(FOUR) + 1)), gains)
    title = "Cooperative shares over max-min (figure 5a)"
    chart = ReportChart(title, "tenant", "throughput over max-min", [shown])
    return Findings(four_claims(four), charts=[chart])


# ---- sections 4 and 5 ----


def proof_claims(proofs: Mapping[str, Any]) -> list[Claim]:
    """Return claims of sections 4 and 5 from the result of `properties.proofs`."""

    def random(place: str, text: str, key: str) -> Claim:
        count = proofs["broken"][key]
        ours = f"broken in {count} of {CASES} random cases"
        return Claim.of(place, text, "proved", ours, held=not count)

    before, after = proofs["several_types"]
    few, better = proofs["cooperative"], proofs["better"]
    wider = all(mine >= its - TOLERANCE for mine, its in zip(better, few, strict=True))
    improves = wider and max(m - its for m, its in zip(better, few, strict=True)) > TOLERANCE
    distant = proofs["distant"]
    apart = distant[0] > TOLERANCE > distant[1] and distant[2] > TOLERANCE
    return [
        random(
            "5.4", "Non-cooperative: nobody gains by overstating, one job type each", "overstating"
        ),
        Claim.of(
            "4.2.4",
            "Non-cooperative: the same where a tenant has several job types",
            "said",
            f"{number(before, 3)} becomes {number(after, 3)}",
            held=after <= before + TOLERANCE,
            why_not="(1, 3), (1, 4), (1, 1) beside (1, 5) on 1 and 5 GPUs: the third says (1, 3)",
        ),
        random("5.1", "Cooperative: nobody envies another", "envy"),
        random("5.1", "Cooperative: nobody has less than the equal split", "split"),
        Claim.of(
            "5.3",
            "Cooperative: nobody can have more without somebody having less",
            "proved",
            f"{listed(few)}; possible: {listed(better)}",
            held=not improves,
            why_not="(1, 1, 1), (1, 4, 12), (1, 4, 16) on one GPU of each type; the first would"
            " envy the second",
        ),
        Claim.of(
            "5.2",
            "Nobody has GPUs of types that are not neighbours",
            "proved",
            f"the first has {listed(distant, 3)}",
            held=not apart,
            why_not="(1, 2, 5), (1, 4, 6) on 2, 1 and 1 GPUs, non-cooperative",
        ),
        random("4.4", "Non-cooperative: at most n + k - 1 shares are not 0", "few"),
        random("4.4", "Cooperative: at most n + k - 1 shares are not 0", "few_cooperative"),
    ]


def _proofs(results: Results) -> Findings:
    honest, low = results[_PROOFS]["understating"]
    note = (
        "The paper's definition of strategy-proofness is of overstating alone. Understating can"
        f" gain: of (1, 2) and (1, 5) on one GPU of each type, the first has {number(low, 3)}"
        f" instead of {number(honest, 3)} when it says (1, 1)."
    )
    return Findings(proof_claims(results[_PROOFS]), notes=[note])


PARTS = (
    Part("oef-four", "OEF: four tenants", SOURCE, "Programs alone, 8 GPUs of each of three types."
         " Speedups "
         + "; ".join(", ".join(f"{value:g}" for value in row) for row in FOUR)
         + " (in 6.2.1 the first tenant is the last of these): the ends are those that the paper"
         " tells, what lies between is ours.", [_FOUR], _four),
    Part("oef-proofs", "OEF: what it proves", SOURCE, f"Programs alone: {CASES} random cases of 5"
         " tenants on four types, speedups from 1 to 10, seeds 0 to 199; and the counterexamples of"
         " `docs/policies/oef.md`.", [_PROOFS], _proofs),
)  # fmt: skip # a table
