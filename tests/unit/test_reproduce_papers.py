"""Test what `make reproduce` concludes about papers, from made-up figures and tiny real runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evenshare_core.policies.gandiva_fair.trading import Trader, new_trades
from evenshare_core.units import GPU_MICRO, HOUR_US
from evenshare_research.reproduce import (
    gandiva_fair,
    ltgf,
    mixed,
    oef,
    oef_proofs,
    philly,
    properties,
    turns,
    venus,
)
from evenshare_research.reproduce.model import Claim, ClaimVerdict
from evenshare_research.reproduce.verdicts import NoisyFigure, gain_verdict

from .reproduce_results import RESAMPLED, made_up, philly_result

YES, PARTLY = ClaimVerdict.REPRODUCED, ClaimVerdict.IN_DIRECTION
NO, UNTESTABLE = ClaimVerdict.NOT_REPRODUCED, ClaimVerdict.NOT_TESTABLE
MORE = ClaimVerdict.MORE


def of(claims: list[Claim], text: str) -> Claim:
    (claim,) = [claim for claim in claims if text in claim.text]
    return claim


class TestLtgf:
    NAMES = [name for name, _, _ in ltgf.SEVEN]

    def rows(self, **figures: float) -> dict[str, dict[str, Any]]:
        """Return figures of 10 for each policy; `ltgf` and the published ones may have others."""
        rows = {name: philly_result({}, 1, **dict.fromkeys(RESAMPLED, 10.0)) for name in self.NAMES}
        for name, key in ((ltgf.LTGF, "ours"), (ltgf.PAPERS, "published")):
            rows[name] = philly_result({}, 1, **dict.fromkeys(RESAMPLED, figures[key]))
        return rows

    @pytest.mark.parametrize(
        ("ours", "published", "verdict"),
        [(9, 9, YES), (11, 9, YES), (9, 11, PARTLY), (11, 11, NO), (11, 10, PARTLY)],
    )
    def test_fairness_verdict_depends_on_both_forms(
        self, ours: float, published: float, verdict: ClaimVerdict
    ) -> None:
        rows = self.rows(ours=ours, published=published)
        claims = ltgf.fairness_claims(rows, rows[ltgf.LTGF])
        for text in ("Fewer jobs", "tenant-hours", "slowdown", "JCT"):
            claim = next(one for one in claims if text in one.text)
            assert claim.verdict is verdict, claim.text
            assert bool(claim.why) == (ours >= 10 or published >= 10)

    def test_names_better_rival(self) -> None:
        rows = self.rows(ours=9, published=9)
        rows["`hived`"] = philly_result({}, 1, **dict.fromkeys(RESAMPLED, 10.0) | {"slowdown": 8.0})
        claims = ltgf.fairness_claims(rows, rows[ltgf.LTGF])
        assert of(claims, "The mean slowdown is the lowest").verdict is NO
        assert of(claims, "The mean slowdown is the lowest").why == "not below `hived`"
        assert of(claims, "The mean JCT is the lowest").verdict is YES

    def test_rival_within_noise_leaves_verdict_open(self) -> None:
        """The rival is 5 % behind on average, but ahead in some of the resamples."""
        rows = self.rows(ours=9, published=9)
        rows["`hived`"]["jct_s"] = 9.45
        rows["`hived`"]["resampled"]["jct_s"] = [8.0, 11.0] * 5
        claim = of(ltgf.fairness_claims(rows, rows[ltgf.LTGF]), "The mean JCT is the lowest")
        assert claim.verdict is PARTLY
        assert claim.why == "as published, within the noise of `hived`"

    @pytest.mark.parametrize(
        ("cost", "verdict"),
        [(0.0, MORE), (0.004, MORE), (0.008, YES), (0.009, YES), (0.012, PARTLY), (0.02, NO)],
    )
    def test_lease_cost_verdict(self, cost: float, verdict: ClaimVerdict) -> None:
        rows = self.rows(ours=1 + cost, published=1)
        claims = ltgf.fairness_claims(rows, philly_result({}, 1, jct_s=1.0))
        assert of(claims, "Leases of 900 s").verdict is verdict

    @pytest.mark.parametrize(
        ("best", "verdict"), [(1200, YES), (900, PARTLY), (600, PARTLY), (300, NO), (3600, NO)]
    )
    def test_best_lease_length_verdict(self, best: int, verdict: ClaimVerdict) -> None:
        rows = {
            lease_s: philly_result({}, 1, jct_s=100.0 + abs(lease_s - best))
            for lease_s in ltgf.LEASES_S
        }
        assert of(ltgf.lease_claims(rows), "Mean JCT").verdict is verdict

    @pytest.mark.parametrize(
        ("losses", "verdict"),
        [((1, 2, 3, 4, 5, 6), YES), ((1, 3, 2, 4, 5, 6), PARTLY), ((6, 5, 4, 3, 2, 1), NO)],
    )
    def test_longer_leases_are_less_fair_verdict(
        self, losses: tuple[int, ...], verdict: ClaimVerdict
    ) -> None:
        rows = {
            lease_s: philly_result({}, 1, sharing_loss_jobs=loss / 100)
            for lease_s, loss in zip(ltgf.LEASES_S, losses, strict=True)
        }
        assert of(ltgf.lease_claims(rows), "less fair").verdict is verdict

    @pytest.mark.parametrize(
        ("others", "verdict"),
        [((), YES), ((5,), PARTLY), ((6,), PARTLY), ((6, 6), NO), ((5, 5, 5, 5), NO)],
    )
    def test_size_verdict_counts_every_size(
        self, others: tuple[int, ...], verdict: ClaimVerdict
    ) -> None:
        """`ltgf` has 4 where `tiresias_l` has 5, except at the first sizes."""
        steps = [*others, *[4] * (len(ltgf.SIZES) - len(others))]
        rows = {
            (nodes, name): philly_result({}, 5 if name == ltgf.TIRESIAS else step)
            for nodes, step in zip(ltgf.SIZES, steps, strict=True)
            for name in ltgf.BOTH
        }
        for claim in ltgf.size_claims(rows):
            assert claim.verdict is verdict
            assert all(f"{nodes}" in claim.why for nodes in ltgf.SIZES[: len(others)])

    def test_settings_without_effect_are_not_reproduced(self) -> None:
        plain, better = philly_result({}, 5), philly_result({}, 4)
        assert ltgf.settings_claim(plain, plain).ours == "changes nothing"
        assert ltgf.settings_claim(plain, plain).verdict is NO
        assert ltgf.settings_claim(plain, better).verdict is YES
        assert ltgf.settings_claim(better, plain).verdict is NO

    def test_runs_on_small_trace(self) -> None:
        ours = json.loads(philly.philly("2017-12-15", "ltgf", days=1, nodes=2).arguments)
        figures = philly.run(**ours)
        assert figures["jobs"] == len(philly.philly_slice("2017-12-15", 1).jobs) > 0
        assert figures["jct_s"] > 0
        at_events = philly.run(**ours | {"round_s": 0})
        assert at_events["jct_s"] <= figures["jct_s"]


class TestVenusQuotas:
    def test_cover_largest_clusters(self) -> None:
        quotas = venus.venus_quotas(venus.DAY)
        assert len(quotas) == 16
        assert (next(iter(quotas)), sum(quotas.values())) == ("vcvGl", 952)

    def test_jobs_match_demand_and_fit_quotas(self) -> None:
        quotas = venus.venus_quotas(venus.DAY, 4)
        jobs = venus.draw_jobs(quotas, 6, 1)
        assert jobs == venus.draw_jobs(quotas, 6, 1) != venus.draw_jobs(quotas, 6, 2)
        asked = sum(job.gpus * job.duration_us for job in jobs)
        last = max(job.gpus * job.duration_us for job in jobs)
        due = venus.ASKED * sum(quotas.values()) * 6 * HOUR_US
        assert due <= asked <= due + last
        gpus = list(quotas.values())
        assert all(job.gpus <= gpus[job.tenant - 1] for job in jobs)

    def test_claims_follow_rules_of_other_slices(self) -> None:
        (part,) = venus.PARTS
        figures = venus.run(day=venus.DAY, tenants=2, hours=1, seed=3, policy="ltgf", options={})
        assert figures["jobs"] > 0
        claims = part.judge(dict.fromkeys(part.runs, figures)).claims
        assert [claim.verdict for claim in claims] == [PARTLY] * len(claims)


class TestGandivaFair:
    @pytest.mark.parametrize(
        ("ours", "verdict"), [((4, 4), YES), ((3.81, 4.19), YES), ((3.79, 4.21), NO)]
    )
    def test_share_verdict_has_tolerance(
        self, ours: tuple[float, ...], verdict: ClaimVerdict
    ) -> None:
        got, why = gandiva_fair.shares_verdict(ours, (4, 4))
        assert got is verdict
        assert bool(why) == (verdict is NO)

    def test_70_users_are_not_reproduced_because_of_one_class(self) -> None:
        """The classes get 38.2, 3.8 and 6.0 GPUs, where 37.2, 3.6 and 7.2 are fair.

        The claim names the class of 4 GPUs.
        """
        verdict, why = gandiva_fair.shares_verdict(
            (38.2, 3.8, 6.0), (37.2, 3.6, 7.2), ("one", "two", "four")
        )
        assert verdict is NO
        assert why == "four has 6.00 GPUs, its fair share is 7.20"

    @pytest.mark.parametrize(
        ("gains", "verdicts"),
        [
            ((0.3, 0.0, 0.0, 0.3), (YES, YES, YES)),
            ((0.12, 0.0, 0.0, 0.6), (PARTLY, MORE, YES)),
            ((0.0, 0.0, 0.05, 0.35), (NO, YES, YES)),
            ((0.3, -0.1, 0.0, 0.3), (YES, YES, NO)),
        ],
    )
    def test_trade_verdicts(
        self, gains: tuple[float, ...], verdicts: tuple[ClaimVerdict, ...]
    ) -> None:
        claims = gandiva_fair.trade_claims(
            {tenant: NoisyFigure.exact(gain) for tenant, gain in enumerate(gains, 1)}
        )
        assert tuple(claim.verdict for claim in claims) == verdicts
        assert claims[2].why == ("" if verdicts[2] is YES else "user 2 is 10 % slower")

    def test_second_price_is_that_of_figure_9(self) -> None:
        """The users' speeds give the price at which user 1 bought V100s at 15:11."""
        traders = [
            Trader(tenant, speeds, dict.fromkeys(speeds, GPU_MICRO), 99 * GPU_MICRO)
            for tenant, speeds in gandiva_fair.SPEEDS.items()
        ]
        trades = new_trades(traders, [], gandiva_fair.TYPES, 0)
        (price,) = [t.rate_micro for t in trades if (t.bought_type, t.sold_type) == ("v100", "k80")]
        assert price == 1_940_000

    def test_idle_gpus_and_kept_trades_are_named(self) -> None:
        (part,) = [part for part in gandiva_fair.PARTS if part.name == "gandiva_fair-types"]
        claims = list(part.judge(made_up(part)).claims)
        assert of(claims, "trades are undone").verdict is NO
        assert of(claims, "trades are undone").why == "no trade was undone"
        assert of(claims, "does not suffer").verdict is NO
        assert of(claims, "does not suffer").why == "88 GPUs idle in one quantum"

    def test_shares_single_node_equally(self) -> None:
        run = turns.turns(
            "tiny", 1, sizes={"gpu": [4]}, kinds=[(1, 4, 1), (2, 4, 2), (3, 4, 4)], quanta=40,
            tickets={tenant: {"gpu": 1} for tenant in (1, 2, 3)}, ends={3: 24},
        )  # fmt: skip
        result = turns.run(**json.loads(run.arguments))
        assert gandiva_fair.mean_gpus(result, 0, 24) == pytest.approx(
            dict.fromkeys((1, 2, 3), 4 / 3)
        )
        assert gandiva_fair.mean_gpus(result, 25, 40)[3] == 0
        assert gandiva_fair.least_use(result, 0, 40) == 4

    def test_runs_table_3_with_its_trades(self) -> None:
        """In one window, four trades raise A from 25 to 40 K80s and C from 45 to 50."""
        speeds = {1: 1250, 2: 5000, 3: 6250}
        rows = {tenant: {"k80": 1000, "v100": speed} for tenant, speed in speeds.items()}
        run = turns.turns(
            "tiny", 1, sizes={"k80": [4] * 15, "v100": [4] * 3},
            kinds=[(tenant, 60, 1) for tenant in speeds], quanta=60,
            tickets={tenant: {"k80": 20, "v100": 4} for tenant in speeds}, speeds=rows,
            trading=True,
        )  # fmt: skip
        result = turns.run(**json.loads(run.arguments))
        assert sum(result["made"]) == 4
        assert not any(result["undone"])
        got = gandiva_fair.progress(result, rows, 40, 60)
        assert got == pytest.approx({1: 40, 2: 40, 3: 50}, rel=0.07)


class TestOef:
    @pytest.mark.parametrize(
        ("gains", "verdict"),
        [
            ((0.2, 0.2), YES),
            ((0.16, 0.16), YES),
            ((0.1, 0.17), PARTLY),
            ((0.1, 0.21), YES),
            ((0.14, 0.14), PARTLY),
            ((0.01, 0.01), NO),
            ((-0.02, 0.2), NO),
            ((0.26, 0.26), MORE),
        ],
    )
    def test_gain_verdict_depends_on_size_and_noise(
        self, gains: tuple[float, ...], verdict: ClaimVerdict
    ) -> None:
        assert gain_verdict(NoisyFigure.of_seeds(gains), 0.2) is verdict

    @pytest.mark.parametrize(
        ("cooperative", "noncooperative", "most", "verdicts"),
        [
            (12, 10, 13, (YES, YES, YES, YES)),
            (10.5, 9.6, 13, (PARTLY, PARTLY, YES, YES)),
            (10, 9, 11, (NO, NO, NO, NO)),
            (13, 11, 13, (MORE, MORE, MORE, MORE)),
        ],
    )
    def test_estimate_verdicts(
        self,
        cooperative: float,
        noncooperative: float,
        most: float,
        verdicts: tuple[ClaimVerdict, ...],
    ) -> None:
        row = {"cooperative": cooperative, "noncooperative": noncooperative, "gavel": 20.0,
               oef.GAVEL_RULE: 10.0, "gandiva_fair": 10.0, "max_efficiency": most}  # fmt: skip
        claims = oef.estimate_claims([row, row], "made up")
        assert tuple(claim.verdict for claim in claims) == verdicts
        assert ("no shares could" in claims[0].why) == (most == 11)

    @pytest.mark.parametrize(
        ("deviation", "verdict"), [(0.03, YES), (0.05, PARTLY), (0.12, NO), (0.02, MORE)]
    )
    def test_error_verdict(self, deviation: float, verdict: ClaimVerdict) -> None:
        assert oef.error_claim([deviation, deviation], "made up").verdict is verdict

    def test_actual_claims_have_row_per_rival(self) -> None:
        totals = {name: [10.0, 10.0] for name, _, _ in oef.POLICIES}
        totals[oef.COOPERATIVE] = [13.0, 13.0]
        totals[oef.GANDIVA] = [9.0, 9.0]
        claims = oef.actual_claims(totals, "made up")
        assert [claim.verdict for claim in claims] == [YES, MORE, NO, YES]

    def test_jct_verdicts(self) -> None:
        jcts = {name: [100.0, 200.0] for name, _, _ in oef.POLICIES}
        jcts[oef.COOPERATIVE] = [95.0, 190.0]
        over_gandiva, over_gavel = oef.jct_claims(jcts)
        assert over_gandiva.verdict is over_gavel.verdict is PARTLY
        jcts[oef.GAVEL] = [90.0, 190.0]
        assert oef.jct_claims(jcts)[1].verdict is NO
        jcts[oef.GANDIVA] = [112.0, 224.0]
        assert oef.jct_claims(jcts)[0].verdict is YES
        jcts[oef.GANDIVA] = [130.0, 260.0]
        assert oef.jct_claims(jcts)[0].verdict is MORE

    @pytest.mark.parametrize("source", list(oef.SOURCES))
    def test_speeds_are_seeded_and_sorted(self, source: str) -> None:
        rows = mixed.rows_of(source, 20, 1)
        assert rows == mixed.rows_of(source, 20, 1) != mixed.rows_of(source, 20, 2)
        assert all(row[0] == 1 and row == sorted(row) for row in rows)
        if source == "paper":
            assert all(mixed.LEAST <= row[-1] <= mixed.MOST for row in rows)

    def test_estimates_are_ordered(self) -> None:
        """No rule exceeds the largest total, and no envy-free rule falls below the equal split."""
        for row in mixed.estimates(source="gavel", tenants=6, seeds=3):
            assert max(row.values()) == row["max_efficiency"]
            assert row[oef.GAVEL_RULE] < row["gavel"]
            assert row["cooperative"] >= row["max_min"]
            assert row["gandiva_fair"] >= row["max_min"]

    def test_exact_profiles_have_no_deviation(self) -> None:
        rows = mixed.profile_errors(source="paper", tenants=4, errors=[0, 0.2])
        for right, wrong in rows.values():
            assert max(right) < 1e-6 < max(wrong)

    def test_trades_between_two_tenants_raise_total(self) -> None:
        """Each tenant has half of 8 GPUs of each type.

        At a price of 2.5 slow GPUs per fast one, the second tenant sells its 8 slow GPUs for 3.2
        fast ones, and then has 7.2.
        """
        assert mixed.trading_total([[1, 1, 1], [1, 1, 1]]) == pytest.approx(24)
        assert mixed.trading_total([[1, 1, 1], [1, 1, 4]]) == pytest.approx(16 + 0.8 + 7.2 * 4)

    @pytest.mark.parametrize(("policy", "options"), [one[1:] for one in oef.POLICIES])
    def test_steady_state_and_daily_runs_work(self, policy: str, options: dict[str, Any]) -> None:
        given: dict[str, Any] = {"policy": policy, "options": options, "seed": 1}
        got = mixed.steady(**given, source="gavel", tenants=4, hours=2, gangs=(1, 1, 2, 4))
        most = mixed.estimates(source="gavel", tenants=4, seeds=1)[0]["max_efficiency"]
        assert 0 < got["throughput"] <= most
        days = mixed.days(**given, source="gavel", tenants=4, each=2, hours=3)
        assert days["jobs"] == 8
        assert days["jct_s"] > 0


class TestOefProperties:
    def test_four_tenants_match_paper(self) -> None:
        (part,) = [part for part in oef_proofs.PARTS if part.name == "oef-four"]
        (result,) = made_up(part).values()
        assert {claim.verdict for claim in oef_proofs.four_claims(result)} == {YES}

    @pytest.mark.parametrize(
        ("change", "text", "verdict"),
        [
            ({"three": [12.0, 12.0, 12.1]}, "equal progress", NO),
            ({"lies": {"1.1": [10.1, 35.0]}}, "overstates its", NO),
            ({"lies": {"1.1": [9.0, 38.0]}}, "lowers the total", PARTLY),
            ({"lies": {"1.1": [9.0, 40.0]}}, "lowers the total", NO),
            ({"two_types": [4.0, 6.0, 10.0]}, "job types", NO),
            ({"over_max_min": [0.99, 1.0, 1.0, 1.16]}, "max-min", NO),
            ({"over_max_min": [1.0, 1.0, 1.0, 1.4]}, "max-min", PARTLY),
            ({"over_max_min": [1.16, 1.0, 1.0, 1.0]}, "max-min", PARTLY),
            ({"envied": 1.1}, "prefers another's", NO),
            ({"envy": 1.2}, "prefers another's", PARTLY),
        ],
    )
    def test_four_tenants_detect_deviations(
        self, change: dict[str, Any], text: str, verdict: ClaimVerdict
    ) -> None:
        (part,) = [part for part in oef_proofs.PARTS if part.name == "oef-four"]
        (result,) = made_up(part).values()
        assert of(oef_proofs.four_claims(result | change), text).verdict is verdict

    def test_four_tenants_experiment_runs(self) -> None:
        four = properties.four_tenants()
        assert four["three"][0] > four["four"][0]
        claims = oef_proofs.four_claims(four)
        for text in ("equal progress", "overstates its", "job types"):
            assert of(claims, text).verdict is YES

    def test_proofs_hold_or_fail_by_known_counterexample(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(properties, "CASES", 10)
        claims = oef_proofs.proof_claims(properties.proofs())
        assert len(claims) == 8
        failed = [claim for claim in claims if claim.verdict is NO and claim.why]
        assert [claim.place for claim in failed] == ["4.2.4", "5.3", "5.2"]
        assert failed[0].ours == "8.244 becomes 8.872"
        assert failed[1].ours == "1.00, 8.00, 10.00; possible: 1.00, 8.00, 10.67"
        assert failed[2].ours == "tenant 1 has 2.000, 0.000, 0.727"
        for claim in claims[:1] + claims[2:4]:
            assert claim.verdict is YES

    def test_proof_verdicts_follow_counts(self) -> None:
        (part,) = [part for part in oef_proofs.PARTS if part.name == "oef-proofs"]
        (result,) = made_up(part).values()
        assert {claim.verdict for claim in oef_proofs.proof_claims(result)} == {YES}
        broken = result | {"broken": result["broken"] | {"envy": 1}}
        assert of(oef_proofs.proof_claims(broken), "envies").verdict is NO
        everywhere = oef_proofs.proof_claims(result | {"distant": [1.0, 1.0, 1.0]})
        assert of(everywhere, "not adjacent").verdict is YES
