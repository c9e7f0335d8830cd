"""Test a round's certificate: stored, recomputed, shown by role; injected violations are red."""

from __future__ import annotations

import html
import re

import pytest
from django.core.management import call_command
from django.db import DatabaseError, transaction
from django.test import Client

from evenshare_core.fairness.certificate import VERSION, Property, Verdict, certificate, read
from portal.rounds.text.certificate import NAMES
from scheduling.engine import rounds as engine
from scheduling.models import Round
from scheduling.selectors.rounds.replay import find_rounds, replay_stored_round
from tests.functional.certificate_stage import (
    Change,
    envious,
    overfull,
    overpriced,
    partial,
    passed_over,
    plant,
    starved,
    unkept,
)
from tests.functional.mixed_stage import mixed_stage
from tests.functional.page_text import words
from tests.functional.pool_stage import Stage, last_round, stage
from tests.functional.test_metrics import sample, scrape
from tests.stages import staged

there = staged(stage)


def sheet(there: Stage, number: int, who: str = "owner") -> str:
    """Return the text of the certificate on a round's page."""
    page = there.page(who, there.url(f"rounds/{number}/"))
    return words(page[page.index('<section class="cert') :].partition("</section>")[0])


class TestOrderOfPicks:
    def test_follows_the_rule_of_the_policy(self, committed_db: str) -> None:
        assert committed_db
        mixed = mixed_stage()
        page = words(mixed.page("owner", mixed.url(f"rounds/{last_round(mixed).number}/")))
        assert "Each job type up to its whole GPUs, larger gangs first" in page
        assert "is served first" not in page
        assert "rho at that point" not in page

    def test_is_by_rho_under_ltgf(self, committed_db: str) -> None:
        assert committed_db
        there = stage(policy="ltgf")
        page = words(there.page("owner", there.url(f"rounds/{last_round(there).number}/")))
        assert "The tenant with the lowest rho" in page
        assert "its tenant's rho at that point" in page


class TestRoundCertificate:
    def test_is_stored_without_violations(self, there: Stage) -> None:
        for round_ in Round.objects.filter(pool=there.lab.pool):
            found = read(round_.certificate)
            assert (found.failure, found.violated) == ("", ())
            assert {row.name for row in found.findings} == set(Property) - {
                Property.TRADES,
                Property.INDIVIDUAL_RATIONALITY,
                Property.MEASURED_SPEEDS,
            }

    def test_is_reproduced_from_stored_bytes(self, there: Stage) -> None:
        there.lab.rounds(4, every_s=900)
        replays = [replay_stored_round(row) for row in find_rounds(there.pool, [], every=True)]
        assert len(replays) >= 5
        assert all(replay.same and replay.certified is True for replay in replays)

    def test_replay_detects_altered_certificate(
        self, there: Stage, capsys: pytest.CaptureFixture[str]
    ) -> None:
        call_command("replay_round", "1", pool=there.pool)
        assert "certificate the same" in capsys.readouterr().out
        round_ = last_round(there)
        assert round_.certificate is not None
        round_.certificate["findings"][0]["checked"] = 77
        assert replay_stored_round(round_).certified is False
        round_.certificate["version"] = VERSION + 1
        assert replay_stored_round(round_).certified is None

    def test_cannot_be_changed_in_database(self, there: Stage) -> None:
        with pytest.raises(DatabaseError), transaction.atomic():
            Round.objects.filter(pool=there.lab.pool).update(certificate={})

    def test_failed_certification_does_not_stop_the_round(
        self, there: Stage, monkeypatch: pytest.MonkeyPatch, client: Client
    ) -> None:
        failed = certificate((), failure="ValueError: planted")
        monkeypatch.setattr(engine, "certify_round", lambda *_: failed)
        scrape(client)
        there.lab.submit("beta", 1, 60)
        round_ = there.lab.round(after_s=10).round
        assert round_ is not None
        assert round_.summary["granted"] == 1
        assert "could not be certified: the measurement failed" in sheet(there, round_.number)
        assert "ValueError: planted" in sheet(there, round_.number, "operator")
        found = scrape(client)
        assert sample(found, "certificate_failed", pool=there.pool) == 1
        assert (
            sample(found, "certified_rounds_total", pool=there.pool, verdict="not_certified") == 1
        )


class TestRoundPage:
    """12. Policy, snapshot hash, solver status, entitlement and allocation.

    A shell on the server computes the same hashes.
    """

    def test_explains_decision_and_replay_gives_same_hashes(
        self, committed_db: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert committed_db
        there = mixed_stage()
        round_ = last_round(there)
        there.lab.seal()
        page = there.page("owner", there.url(f"rounds/{round_.number}/"))
        read_ = words(page)
        assert f"by policy oef {round_.policy_version}" in read_
        assert "Program solved by fast: optimal" in read_
        assert "Program OEF (10): the largest total throughput without envy Program" in read_
        assert "Solved, decided and checked in" in read_
        assert "Shares trade one GPU type for another" in read_
        assert "fair share now" not in read_
        shares = words(there.page("owner", there.url(f"rounds/{round_.number}/shares/")))
        assert "Tenant Quota Demand Fair share Own Borrows Holds" in shares
        for sha256 in (round_.snapshot_sha256, round_.decision_sha256):
            assert sha256 in "".join(re.sub(r"<[^>]+>", "", page).split())
        assert f"evenshare round verify {round_.number} --pool {there.pool}" in read_
        call_command("replay_round", str(round_.number), pool=there.pool)
        printed = capsys.readouterr().out
        assert f"same bytes  snapshot {round_.snapshot_sha256}" in printed
        assert f"decision {round_.decision_sha256}  certificate the same" in printed


P = Property
PLANTED = [
    (envious, Property.ENVY_FREE, "Envy-freeness violated"),
    (overfull, Property.CAPACITY, "No GPU is granted twice violated"),
    (partial, Property.GANG, "Each job holds all of its GPUs violated"),
    (overpriced, Property.INDIVIDUAL_RATIONALITY, "Individual rationality violated"),
    (passed_over, Property.QUOTA_GUARANTEE, "Quotas are guaranteed violated"),
    (unkept, Property.PROMISED_STARTS, "Promised starts are kept violated"),
    (starved, Property.LONG_TERM_ORDER, "Furthest below fair share goes first violated"),
]
# In the previous round, the pool's own policy has no number for these lines.
NEW_LINES = {
    Property.ENVY_FREE,
    Property.INDIVIDUAL_RATIONALITY,
    Property.QUOTA_GUARANTEE,
    Property.PROMISED_STARTS,
    Property.LONG_TERM_ORDER,
}


class TestPlantedViolation:
    @pytest.mark.parametrize(("change", "name", "line"), PLANTED)
    def test_appears_on_round_page_and_in_metrics(
        self, there: Stage, client: Client, change: Change, name: Property, line: str
    ) -> None:
        found = scrape(client)
        if name not in NEW_LINES:
            assert sample(found, "certificate_violations", pool=there.pool, property=name) == 0
        round_ = plant(there, change)
        page = sheet(there, round_.number)
        assert "broken." in page
        assert line in page
        for one in (P.ENVY_FREE, P.SHARING_INCENTIVE, P.PARETO, P.OVERSTATING, P.UNDERSTATING):
            assert NAMES[one] in page
        found = scrape(client)
        assert sample(found, "certificate_violations", pool=there.pool, property=name) >= 1
        assert sample(found, "certificate_age_seconds", pool=there.pool) >= 0
        # The previous round was certified too, without a violation.
        assert "broken." not in sheet(there, round_.number - 1)

    def test_increments_violated_round_counter(self, there: Stage, client: Client) -> None:
        scrape(client)
        plant(there, envious)
        from scheduling.models import PoolFence

        PoolFence.objects.filter(pool=there.lab.pool).update(
            next_round=last_round(there).number + 1
        )
        found = scrape(client)
        assert sample(found, "certified_rounds_total", pool=there.pool, verdict="violated") == 1

    def test_is_found_again_when_page_recomputes(self, there: Stage) -> None:
        round_ = plant(there, envious)
        page = words(there.page("owner", there.url(f"rounds/{round_.number}/")))
        assert "again when you opened this page: the same" in page


class TestTenantView:
    """The worst numbers of the injected round belong to alpha.

    The neighbour is the manager of beta.
    """

    def test_shows_names_if_pool_shows_everything(self, there: Stage) -> None:
        round_ = plant(there, envious)
        page = sheet(there, round_.number, "neighbour")
        assert "By weight, alpha would do" in page
        assert "with the share of" in page

    def test_replaces_names_of_others_with_pseudonyms(self, there: Stage) -> None:
        round_ = plant(there, envious)
        there.see("pseudonyms")
        page = sheet(there, round_.number, "neighbour")
        assert "alpha" not in page
        assert "By weight, tenant 1 would do" in page

    def test_hides_numbers_of_others_if_pool_hides_rows(self, there: Stage) -> None:
        round_ = plant(there, envious)
        there.see("own")
        stored = read(round_.certificate)
        alpha = there.tenant("alpha").pk
        theirs = [row for row in stored.findings if row.tenant == alpha]
        assert theirs
        answer = there.get("neighbour", f"/api/v1/rounds/{there.pool}/{round_.number}")
        told = answer.json()["certificate"]
        for row in theirs:
            line = next(one for one in told["lines"] if one["property"] == row.name)
            assert (line["worst"], line["tenant"], line["other"], line["hidden"]) == (
                *(None, None, None),
                True,
            )
            assert line["verdict"] == row.verdict
        assert [row["tenant"]["name"] for row in told["rows"]] == ["beta"]
        assert told["rows"][0]["best_other"] is None
        assert told["rows_hidden"] == 2
        page = there.page("neighbour", there.url(f"rounds/{round_.number}/"))
        assert "alpha" not in page
        assert "another tenant's" in html.unescape(page)

    def test_hides_job_value_of_other_tenants(self, there: Stage) -> None:
        """This pool shows all names and numbers, but alpha's margin is private."""
        round_ = plant(there, overpriced)
        path = f"/api/v1/rounds/{there.pool}/{round_.number}"

        def told(who: str) -> tuple[float | None, bool, str]:
            lines = there.get(who, path).json()["certificate"]["lines"]
            line = next(row for row in lines if row["property"] == "individual_rationality")
            return line["worst"], line["hidden"], line["verdict"]

        assert told("neighbour") == (None, True, "violated")
        assert told("owner") == told("operator") == (-8.0, False, "violated")
        page = sheet(there, round_.number, "neighbour")
        assert "alpha borrowed above the value of a GPU-hour to the job." in page

    def test_rest_returns_the_same_certificate(self, there: Stage) -> None:
        round_ = plant(there, envious)
        answer = there.get("owner", f"/api/v1/rounds/{there.pool}/{round_.number}")
        told = answer.json()["certificate"]
        line = next(one for one in told["lines"] if one["property"] == "envy_free")
        assert (line["verdict"], line["tenant"]["name"]) == (Verdict.VIOLATED, "alpha")
        assert told["same_again"] is True
        assert [row["tenant"]["name"] for row in told["rows"]] == ["alpha", "beta", "gamma"]
