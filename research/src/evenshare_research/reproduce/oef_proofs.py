"""Claims of OEF's proofs, sections 4 and 5, and of its experiment with four tenants, 6.2."""

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
from evenshare_research.reproduce.verdicts import NoisyFigure, gain_verdict

_FOUR, _PROOFS = four_run(), proofs_run()


# ---- section 6.2 ----


def four_claims(four: Mapping[str, Any]) -> list[Claim]:
    """Return the claims of 6.2 from the result of `properties.four_tenants`."""
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
            "Non-cooperative: all four tenants make equal progress, and later the three that stay",
            "equal",
            f"{listed(honest)}; {listed(four['three'])}",
            held=equal,
        ),
        Claim.of(
            "6.2.1",
            "A tenant that overstates its speedups gets less than before",
            "less",
            _by_lie(own),
            held=all(change < -TOLERANCE for change in own.values()),
        ),
        Claim(
            "6.2.1",
            "A tenant that overstates lowers the total by around 10 %",
            "-10 %",
            _by_lie(total),
            gain_verdict(NoisyFigure.exact(-lost), 0.1),
            "the paper does not state by how much the user overstates",
        ),
        Claim.of(
            "6.2.3",
            "Each of a tenant's two job types has half the throughput of other tenants",
            "half",
            listed(two, 3),
            held=all(abs(value - 0.5) <= 0.005 for value in two),
        ),
        Claim(
            "6.2.2",
            "Cooperative: every tenant has at least its max-min throughput, the fastest 1.16x",
            "1 to 1.16x",
            ", ".join(f"{number(gain, 3)}x" for gain in gains),
            verdict_of(
                incentive and abs(most - 1.16) <= 0.04 and most == gains[-1], in_direction=incentive
            ),
        ),
        Claim(
            "6.2.4",
            "No user prefers another's shares; user 4 has 1.58x its throughput with user 1's",
            "1.58x",
            f"{number(four['envy'], 2)}x; with another's shares at most"
            f" {number(four['envied'], 3)} of a user's own",
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
    """Return the claims of sections 4 and 5 from the result of `properties.proofs`."""

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
            "5.4",
            "Non-cooperative: no tenant gains by overstating, one job type each",
            "overstating",
        ),
        Claim.of(
            "4.2.4",
            "Non-cooperative: no tenant gains by overstating, several job types",
            "stated",
            f"{number(before, 3)} becomes {number(after, 3)}",
            held=after <= before + TOLERANCE,
            why_not="a tenant's job types (1, 3), (1, 4), (1, 1) and another's (1, 5) on 1 and 5"
            " GPUs: the third job type reports (1, 3)",
        ),
        random("5.1", "Cooperative: no tenant envies another", "envy"),
        random("5.1", "Cooperative: no tenant has less than the equal split", "split"),
        Claim.of(
            "5.3",
            "Cooperative: no tenant can have more unless another has less",
            "proved",
            f"{listed(few)}; possible: {listed(better)}",
            held=not improves,
            why_not="(1, 1, 1), (1, 4, 12), (1, 4, 16) on one GPU of each type; tenant 1 would"
            " envy tenant 2",
        ),
        Claim.of(
            "5.2",
            "No tenant has GPUs of types that are not adjacent",
            "proved",
            f"tenant 1 has {listed(distant, 3)}",
            held=not apart,
            why_not="(1, 2, 5), (1, 4, 6) on 2, 1 and 1 GPUs, non-cooperative",
        ),
        random("4.4", "Non-cooperative: at most n + k - 1 shares are not 0", "few"),
        random("4.4", "Cooperative: at most n + k - 1 shares are not 0", "few_cooperative"),
    ]


def _proofs(results: Results) -> Findings:
    honest, low = results[_PROOFS]["understating"]
    note = (
        "The paper defines strategy-proofness only for overstating. A tenant can gain by"
        " understating: with (1, 2) and (1, 5) on one GPU of each type, tenant 1 has"
        f" {number(low, 3)} instead of {number(honest, 3)} if it reports (1, 1)."
    )
    return Findings(proof_claims(results[_PROOFS]), notes=[note])


_FOUR_RAN = (
    "Only the programs run, without jobs, on 8 GPUs of each of three types. Speedups: "
    + "; ".join(", ".join(f"{value:g}" for value in row) for row in FOUR)
    + ". In 6.2.1, the first tenant has the last of these speedups. The extremes are the paper's;"
    " the values between them are ours."
)
_PROOFS_RAN = (
    f"Only the programs run, without jobs. They solve {CASES} random cases of 5 tenants on four"
    " types, with speedups from 1 to 10 and seeds 0 to 199. They also solve the counterexamples of"
    " `docs/policies/oef.md`."
)
PARTS = (
    Part("oef-four", "OEF: four tenants", SOURCE, _FOUR_RAN, [_FOUR], _four),
    Part("oef-proofs", "OEF: proofs", SOURCE, _PROOFS_RAN, [_PROOFS], _proofs),
)
