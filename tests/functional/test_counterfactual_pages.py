"""Test "Had I reported otherwise": own job types, stored rounds, true value, bounded cost."""

from __future__ import annotations

import re

import pytest

from evenshare_core.fairness.misreports import ALL_TYPES, FACTORS
from portal.rounds.views import counterfactual as view
from scheduling.models import Job, Profile, Round
from scheduling.selectors.rounds import counterfactual as selector
from scheduling.selectors.rounds.counterfactual import read_counterfactual
from scheduling.selectors.rounds.stored import ReplayError
from scheduling.selectors.visibility import read_visibility
from tenants.models import User
from tenants.rate import Rate
from tenants.scopes import site_scope
from tenants.selectors.access import access_of
from tests.functional.mixed_stage import mixed_stage
from tests.functional.page_text import words
from tests.functional.pool_stage import Stage, headline, last_round, stage
from tests.stages import staged

there = staged(mixed_stage)


def path(there: Stage, query: str = "") -> str:
    return there.url(f"rounds/{last_round(there).number}/counterfactual/{query}")


def asked(there: Stage, who: str, **speeds: int) -> selector.Counterfactual:
    with site_scope():
        visibility = read_visibility(there.lab.pool.pk, access_of(User.objects.get(username=who)))
        return read_counterfactual(last_round(there), visibility, speeds=speeds)


class TestAlternativeReport:
    def test_is_valued_at_true_speeds(self, there: Stage) -> None:
        found = asked(there, "owner", v100=4000)
        assert found.truth is not None
        own = found.tried[0]
        assert (own.factor, own.speeds) == (None, {"k80": 1000, "v100": 4000})
        shares = own.outcome.shares
        assert own.outcome.throughput == pytest.approx(shares["k80"] + 2 * shares["v100"])
        assert own.gain == pytest.approx(own.outcome.throughput - found.truth.outcome.throughput)
        # Example E6 of OEF: with cooperation an overstatement can gain, and here it does.
        assert found.best is not None
        assert found.best.gain > 0.1

    def test_true_report_reproduces_the_round(self, there: Stage) -> None:
        found = asked(there, "owner", v100=2000)
        ways = [(one.factor, one.gpu_type) for one in found.tried]
        over = [(factor, ALL_TYPES) for factor in FACTORS]
        # Half the speed equals the slowest type; a lower speed would be the same report.
        assert ways == [*over, (1 / 1.25, ALL_TYPES), (1 / 1.5, ALL_TYPES), (1 / 2, ALL_TYPES)]
        assert [one.factor for one in found.shown] == [
            max(found.tried[:5], key=lambda one: one.gain).factor,
            max(found.tried[5:], key=lambda one: one.gain).factor,
        ]
        assert found.truth is not None
        rows = (last_round(there).certificate or {})["rows"]
        alpha = next(row for row in rows if row["tenant"] == there.tenant("alpha").pk)
        assert found.truth.outcome.throughput == pytest.approx(alpha["ideal"], abs=1e-5)

    def test_gain_marks_policy_as_not_truthful(self, there: Stage) -> None:
        page = there.page("owner", path(there))
        assert re.match(
            r"Another report would have gained [\d.]+ % in this round \(best found\).",
            headline(page),
        )
        assert "Policy oef is not truthful here" in words(page)

    def test_reads_speeds_from_query(self, there: Stage) -> None:
        page = words(there.page("owner", path(there, "?speed-v100=3,5&speed-k80=1")))
        assert "Your own report reports 1, 3.5" in page
        page = words(there.page("owner", path(there, "?speed-v100=fast")))
        assert "Not a number from 0.001 to 1000" in page
        assert "Your own report" not in page

    @pytest.mark.parametrize("raw", ["-1", "0", "1e400", "nan", "9" * 50, "0.0001"])
    def test_rejects_invalid_speed(self, there: Stage, raw: str) -> None:
        assert "Not a number from" in there.page("owner", path(there, f"?speed-v100={raw}"))


class TestTruthfulness:
    """No report gains more than the truth, unless the page says that the policy is untruthful."""

    @pytest.mark.parametrize("environment", ["cooperative", "noncooperative"])
    def test_gain_over_truth_is_always_stated_on_page(
        self, committed_db: str, environment: str
    ) -> None:
        assert committed_db
        there = mixed_stage(environment)
        for who in ("owner", "neighbour"):
            found = asked(there, who, v100=2900)
            page = words(there.page(who, path(there)))
            assert len(found.tried) > len(FACTORS) + 1
            beaten = any(one.gain > found.noise for one in found.tried)
            assert ("Policy oef is not truthful here" in page) == beaten
            assert (f"None of {len(found.tried) - 1} other reports" in page) == (not beaten)

    def test_overstating_never_gains_without_cooperation(self, committed_db: str) -> None:
        assert committed_db
        there = mixed_stage("noncooperative")
        found = asked(there, "owner", v100=2900)
        over = [one for one in found.tried if (one.factor or 2) > 1]
        assert len(over) == len(FACTORS) + 1
        assert all(one.gain <= found.noise for one in over)
        assert found.promised
        page = words(there.page("owner", path(there)))
        assert "no gain from overstating one job type" in page or "understating gained" in page
        assert found.bound == "OEF (Middleware 2024), theorem 5.4"


class TestVisibility:
    def test_shows_only_own_job_types(self, there: Stage) -> None:
        mine = there.page("owner", path(there))
        assert "alpha-net" in mine
        assert "beta-net" not in mine
        theirs = Profile.objects.get(name="beta-net").pk
        asked_for = there.page("owner", path(there, f"?profile={theirs}"))
        assert "beta-net" not in asked_for
        assert "alpha-net" in asked_for

    def test_explains_missing_job_types(self, there: Stage) -> None:
        Job.objects.filter(tenant=there.tenant("alpha")).update(profile=None)
        there.lab.round(after_s=10)
        page = words(there.page("owner", path(there)))
        assert "You had no job type with speeds in round" in page

    def test_explains_policies_that_ignore_speeds(self, committed_db: str) -> None:
        assert committed_db
        there = stage()
        page = words(there.page("owner", path(there)))
        assert "No report of speeds would have changed this round" in page


class TestCost:
    def test_is_rate_limited_per_user(self, there: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        # On a busy machine the bucket would refill between two requests.
        monkeypatch.setattr(view, "PAGES", Rate(per_s=0.001, full=2))
        client = there.client("owner")
        answers = [client.get(path(there)) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert int(answers[-1].headers["Retry-After"]) >= 1
        assert there.get("neighbour", path(there)).status_code == 200

    def test_round_above_job_limit_is_not_recomputed(
        self, there: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(selector, "MAX_JOBS", 3)
        assert "too large to be recomputed" in words(there.page("owner", path(there)))

    def test_round_without_stored_bytes_is_not_recomputed(
        self, there: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def gone(round_: Round) -> tuple[bytes, bytes]:
            raise ReplayError(f"the bytes of round {round_.number} are no longer kept")

        monkeypatch.setattr(selector, "round_bytes", gone)
        assert "no longer kept, so nothing can be tried" in words(there.page("owner", path(there)))

    def test_unknown_round_returns_404(self, there: Stage) -> None:
        assert there.get("owner", there.url("rounds/99/counterfactual/")).status_code == 404
