"""The pages of simulations over HTTP: permissions, refusals, results."""

from __future__ import annotations

import itertools
from html import escape
from typing import Any

import pytest

from evenshare_core.policies.registry import DEFAULT
from portal.operate.text.simulation import METRICS
from scheduling.models import Simulation
from scheduling.services.execute_simulation import execute_simulation
from scheduling.services.simulations import claim_simulations
from tenants.models import User
from tests.functional.visitors import Town, reads, town, visitor

pytestmark = pytest.mark.usefixtures("committed_db")


@pytest.fixture
def there() -> Town:
    made = town()
    for tenant in ("north", "south"):
        for _ in range(4):
            made.submit(tenant=tenant, gpus=2, duration_s=9000)
    made.play(2)
    return made


def path(there: Town, number: int | None = None) -> str:
    base = f"/operate/pools/{there.cluster.pool.name}/what-if/"
    return base if number is None else f"{base}{number}/"


def ask(there: Town, **fields: Any) -> Any:
    return there.operator.post(path(there), {"policy": "fifo", "hours": "6", **fields})


def done(there: Town) -> Simulation:
    ask(there)
    ((number, claim),) = claim_simulations()
    timer = itertools.count(0, 0.25).__next__
    assert execute_simulation(number, claim, timer=timer) == "done"
    return Simulation.objects.get(pk=number)


class TestRequest:
    def test_redirects_to_page_of_simulation(self, there: Town) -> None:
        answer = ask(there)
        row = Simulation.objects.get()
        assert (answer.status_code, answer["Location"]) == (302, path(there, row.pk))
        assert (row.policy, row.hours, row.asked_by.username) == ("fifo", 6, "eve")

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"policy": "magic"}, "Choose one of the policies: no policy is named"),
            ({"hours": "7"}, "Choose 6, 24 or 72 hours."),
            ({"hours": ""}, "Choose 6, 24 or 72 hours."),
            ({"policy": "ltgf", "option-lease_bonus": "much"}, "Enter a number from 0 to"),
        ],
    )
    def test_invalid_request_shows_error_and_creates_nothing(
        self, there: Town, fields: dict[str, str], words: str
    ) -> None:
        answer = ask(there, **fields)
        assert answer.status_code == 422
        assert words in answer.content.decode()
        assert not Simulation.objects.exists()

    def test_third_open_simulation_is_rejected(self, there: Town) -> None:
        ask(there)
        ask(there)
        answer = ask(there)
        assert answer.status_code == 422
        assert "Cancel one, or wait." in answer.content.decode()

    def test_stores_policy_options_of_form(self, there: Town) -> None:
        ask(there, policy="ltgf", **{"option-spread": "yes"})
        assert Simulation.objects.get().options["spread"] is True


class TestPermissions:
    def test_tenants_receive_404(self, there: Town) -> None:
        row = done(there)
        for client in (there.owner, there.mate, there.neighbour, there.outsider):
            for address in (path(there), path(there, row.pk)):
                assert client.get(address).status_code == 404
            assert client.post(path(there), {"policy": "fifo"}).status_code == 404
            assert client.post(f"{path(there, row.pk)}cancel/").status_code == 404

    def test_auditor_can_read_but_not_start_or_cancel(self, there: Town) -> None:
        row = done(there)
        auditor = visitor("ann", site_role=User.SiteRole.AUDITOR)
        assert "Simulate</button>" not in auditor.get(path(there)).content.decode()
        assert auditor.get(path(there, row.pk)).status_code == 200
        assert auditor.post(path(there), {"policy": "fifo", "hours": 6}).status_code == 403
        assert auditor.post(f"{path(there, row.pk)}cancel/").status_code == 403

    def test_simulation_of_another_pool_returns_404(self, there: Town) -> None:
        row = done(there)
        elsewhere = f"/operate/pools/{there.elsewhere.pool.name}/what-if/{row.pk}/"
        assert there.operator.get(elsewhere).status_code == 404
        assert there.operator.post(f"{elsewhere}cancel/").status_code == 404

    def test_pool_page_links_only_for_operators(self, there: Town) -> None:
        address = f"/pools/{there.cluster.pool.name}/"
        assert path(there) in there.operator.get(address).content.decode()
        assert "what-if" not in there.owner.get(address).content.decode()


class TestResult:
    def test_compares_every_metric_of_the_simulator(self, there: Town) -> None:
        row = done(there)
        page = there.operator.get(path(there, row.pk)).content.decode()
        for name in (
            *("avg_jct_s", "avg_queue_s", "avg_slowdown", "sharing_loss_jobs", "waste"),
            *("tenant_unfair_intervals", "tenant_deficit", "late_vs_fair_reference", "rounds"),
            "tenant_daily_deficit",
            *("gpu_utilisation", "preemptions", "deadline_miss_rate"),
        ):
            assert f'id="figures-{name}"' in page
        for metric in METRICS:
            assert f"{escape(metric.text)} <code" in page
        assert f"{DEFAULT}, as now" in page
        assert "not applicable" in page
        assert row.result is not None
        for run in row.result["runs"]:
            assert run["row"]["sha256"] in page
        assert row.snapshot_sha256 in page
        assert "jobs without one counted with 1 h, because no job has ended yet" in page

    def test_query_count_does_not_grow_with_jobs_or_results(self, there: Town) -> None:
        row = done(there)
        few = len(reads(there.operator, path(there, row.pk)))
        listed = len(reads(there.operator, path(there)))
        for _ in range(6):
            there.submit(tenant="south")
        other = done(there)
        assert len(reads(there.operator, path(there, other.pk))) == few
        assert len(reads(there.operator, path(there))) == listed

    def test_polls_until_cancelled(self, there: Town) -> None:
        ask(there)
        row = Simulation.objects.get()
        assert 'id="sim-watch"' in there.operator.get(path(there, row.pk)).content.decode()
        answer = there.operator.post(f"{path(there, row.pk)}cancel/", follow=True)
        page = answer.content.decode()
        assert "This simulation was cancelled." in page
        assert 'id="sim-watch"' not in page
        again = there.operator.post(f"{path(there, row.pk)}cancel/", follow=True)
        assert "It has already ended." in again.content.decode()

    def test_start_is_in_audit_log(self, there: Town) -> None:
        ask(there)
        page = there.operator.get("/operate/audit/?action=simulation.").content.decode()
        assert "started a simulation" in page


class TestLeaseLengths:
    def settings(self, there: Town) -> str:
        return f"/operate/pools/{there.cluster.pool.name}/settings/"

    def test_settings_page_starts_comparison_and_suggests_its_result(self, there: Town) -> None:
        address = self.settings(there)
        answer = there.operator.post(address, {"do": "lengths", "days": "1", "restart_s": "20"})
        assert (answer.status_code, answer["Location"]) == (302, address)
        row = Simulation.objects.get()
        assert "is queued: 0 %" in there.operator.get(address).content.decode()
        page = there.operator.get(path(there, row.pk)).content.decode()
        assert "Cancel</button>" in page
        ((number, claim),) = claim_simulations()
        timer = itertools.count(0, 0.25).__next__
        assert execute_simulation(number, claim, timer=timer) == "done"
        row.refresh_from_db()
        assert row.result is not None
        best_s = row.result["recommended"]["lease_s"]
        assert best_s != there.cluster.pool.lease_s
        page = there.operator.get(address).content.decode()
        assert f'href="?lease_s={best_s}#settings"' in page
        suggested = there.operator.get(address, {"lease_s": str(best_s)}).content.decode()
        assert f'value="{best_s}"' in suggested.split('id="s-lease_s"')[1].split(">")[0]
        shown = there.operator.get(path(there, row.pk)).content.decode()
        assert "A job loses 20 s when it is resumed." in shown
        assert shown.count("> recommended<") + shown.count(">recommended<") == 1

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"days": "2"}, "Choose 1, 3 or 7 days."),
            ({"days": "1", "restart_s": "-1"}, "0 to 86,400"),
            ({"days": "1", "restart_s": "soon"}, "whole number"),
        ],
    )
    def test_invalid_field_is_named(self, there: Town, fields: dict[str, str], words: str) -> None:
        answer = there.operator.post(self.settings(there), {"do": "lengths", **fields})
        assert answer.status_code == 422
        assert words in answer.content.decode()
        assert not Simulation.objects.exists()

    def test_auditor_sees_no_form(self, there: Town) -> None:
        auditor = visitor("ann", site_role=User.SiteRole.AUDITOR)
        assert "compare-lengths" not in auditor.get(self.settings(there)).content.decode()
        posted = {"do": "lengths", "days": "1"}
        assert auditor.post(self.settings(there), posted).status_code == 403
