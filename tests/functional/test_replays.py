"""Replays of a pool's last days: requested, run, and shown to operators and tenants."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest

from evenshare_core.money.fixed_point import to_credits
from evenshare_core.policies.registry import DEFAULT, POLICIES
from evenshare_core.simulation.scenario import run_policy
from evenshare_core.units import HOUR_US
from portal.charts.figures import credits_text, thousands
from scheduling.models import Job, Node, Pool, PriceSetting, Simulation
from scheduling.services import simulations as service
from scheduling.services.execute_simulation import execute_simulation
from scheduling.services.past_runs import read_past, read_runs
from tenants.models import AuditRecord, Quota, User
from tests.functional.visitors import Town, reads, town, visitor
from tests.stages import staged


def busy_town() -> Town:
    """Return two tenants whose jobs wait; north borrows, and one of two deadlines is too soon."""
    made = town()
    lab = made.cluster
    lab.pool.seed = 7
    lab.pool.save()
    for _ in range(2):
        made.submit(gpus=8, duration_s=4000)
    for after_s in (1000, 40_000):
        due = lab.at + timedelta(seconds=after_s)
        lab.submit("south", 2, 3000, job_class="strict_slo", deadline_at=due)
    made.play(2)
    return made


there = staged(busy_town)


def path(there: Town, number: int | None = None) -> str:
    base = f"/operate/pools/{there.cluster.pool.name}/what-if/"
    return base if number is None else f"{base}{number}/"


def ask(there: Town, **fields: Any) -> Any:
    asked = {"do": "history", "days": "1", "seed": "7", "policies": ["fifo", "drf"]}
    return there.operator.post(path(there), {**asked, **fields})


def execute() -> Simulation:
    ((number, claim),) = service.claim_simulations()
    execute_simulation(number, claim, timer=itertools.count(0, 0.25).__next__)
    return Simulation.objects.get(pk=number)


def replay(there: Town, **fields: Any) -> Simulation:
    """Request a replay and run it in this process."""
    answer = ask(there, **fields)
    assert answer.status_code == 302, answer.content.decode()
    row = execute()
    assert row.state == "done", row.error
    return row


def result_of(row: Simulation) -> Mapping[str, Any]:
    result: Mapping[str, Any] | None = row.result
    assert result is not None
    return result


def hashes(row: Simulation) -> tuple[str, list[str]]:
    return row.snapshot_sha256, [run["sha256"] for run in result_of(row)["policies"]]


def charges_of(run: Mapping[str, Any]) -> str:
    return credits_text(to_credits(run["charged_micro"]))


def cells(page: str, name: str, key: str = "figures") -> list[str]:
    """Return the texts of the cells of a figure."""
    row = page.split(f'id="{key}-{name}"')[1].partition("</tr>")[0]
    texts = [part.split(">", 1)[1].partition("</td>")[0] for part in row.split("<td")[1:]]
    return [" ".join(text.replace('<span class="mut">', "").split()) for text in texts]


def show(there: Town, row: Simulation, **fields: str) -> Any:
    return there.operator.post(f"{path(there, row.pk)}show/", fields, follow=True)


class TestReplay:
    def test_compares_policies_repeats_hashes_and_shows_tenants_themselves(
        self, there: Town
    ) -> None:
        answer = ask(there)
        row = Simulation.objects.get()
        assert (answer.status_code, answer["Location"]) == (302, path(there, row.pk))
        assert row.options == {"policies": ["fifo", "drf"], "seed": 7}
        assert AuditRecord.objects.get(action="simulation.asked").after["kind"] == "history"
        waits = there.operator.get(path(there, row.pk)).content.decode()
        assert f"under {DEFAULT} and fifo, drf." in waits
        row = execute()
        page = there.operator.get(path(there, row.pk)).content.decode()
        runs, policies = result_of(row)["pool"], result_of(row)["policies"]
        assert [run["policy"] for run in policies] == [DEFAULT, "fifo", "drf"]
        assert f"{DEFAULT}, the pool&#x27;s own</th>" in page
        assert cells(page, "ended") == ["4 of 4"] * 3
        assert cells(page, "deadlines_met") == [f"{run['deadlines_met']} of 2" for run in runs]
        assert cells(page, "charged_micro") == [charges_of(run) for run in runs]
        for name in ("avg_queue_s", "p95_queue_s", "avg_jct_s", "tenant_deficit"):
            assert len(set(cells(page, name))) > 1, f"{name} is the same under all policies"
        best = policies[runs.index(min(runs, key=lambda run: run["avg_queue_s"]))]["policy"]
        assert best in page.split("<h1>")[1].partition("</h1>")[0]
        assert all(one in page for one in (row.snapshot_sha256, *hashes(row)[1]))
        there.cluster.submit("north", 1, 60, after_s=86_400)  # after the replayed days
        assert hashes(replay(there, again=str(row.pk))) == hashes(row)
        show(there, row, is_shown="yes")
        assert AuditRecord.objects.get(action="simulation.shown").after["simulation"] == row.pk
        people = {there.owner: "north", there.mate: "north", there.neighbour: "south"}
        for client, slug in people.items():
            shown = client.get(f"/t/{slug}/replays/").content.decode()
            own = result_of(row)["tenants"][str(there.cluster.tenants[slug].pk)]
            key = f"replay-{row.pk}"
            assert cells(shown, "charged_micro", key) == [charges_of(run) for run in own]
            assert cells(shown, "ended", key) == ["2 of 2"] * 3


WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({"policies": []}, "Choose one to 3 other policies."),
    ({"policies": ["fifo", "drf", "oef", "market"]}, "Choose one to 3 other policies."),
    ({"policies": ["fifo", "fifo"]}, "Choose one to 3 other policies."),
    ({"policies": ["magic"]}, "no policy is named"),
    ({"policies": [DEFAULT]}, "own policy, which is always included"),
    ({"days": "2"}, "Choose 1, 3 or 7 days."),
    ({"seed": "soon"}, "whole number"),
    ({"again": "987654"}, "has no replay 987654."),
)


class TestOperator:
    def test_sums_of_tenants_are_those_of_the_pool(self, there: Town) -> None:
        result = result_of(replay(there))
        for index, pool in enumerate(result["pool"]):
            rows = [runs[index] for runs in result["tenants"].values()]
            assert len(rows) == 2
            for name in ("jobs", "ended", "preemptions", "gpu_us", "charged_micro", "deadlines"):
                assert sum(row[name] for row in rows) == pool[name], name
            assert 0 < sum(row["earned_micro"] for row in rows) == pool["earned_micro"]

    def test_charges_equal_leases_times_prices(self, there: Town) -> None:
        row = replay(there, policies=["fifo"])
        page = there.operator.get(path(there, row.pk)).content.decode()
        assert row.at is not None
        export, options = read_past(there.cluster.pool.name, days=1, until=row.at)
        scenario, (rules,) = read_runs(export, options, [{"policy": "fifo", "option": []}])
        books = run_policy(scenario, rules).books
        charged = sum(
            Fraction(one.borrowed * one.price_micro * (one.ends_us - one.starts_us), HOUR_US)
            for one in books.terms
        )
        assert charged > 1_000_000
        stored = result_of(row)["pool"][1]["charged_micro"]
        assert 0 <= charged - stored < len(books.leases), "each lease is rounded down once"
        assert cells(page, "charged_micro")[1] == credits_text(to_credits(stored))
        held_us = sum(
            (one.end_us - one.start_us) * sum(gpus for _, gpus in one.placement)
            for one in books.leases
        )
        assert cells(page, "gpu_us")[1] == thousands(held_us / HOUR_US, 1)
        assert hashes(row)[1][1] == books.sha256()

    def test_other_inputs_give_other_hashes(self, there: Town) -> None:
        first = replay(there)
        seeded = hashes(replay(there, again=str(first.pk), seed="8"))
        assert seeded[0] != hashes(first)[0]
        PriceSetting.objects.update(base=3)
        priced = hashes(replay(there, again=str(first.pk)))
        assert priced[0] not in (seeded[0], hashes(first)[0])
        assert priced[1][0] != hashes(first)[1][0]
        there.submit()
        later = replay(there)
        assert result_of(later)["jobs"] == result_of(first)["jobs"] + 1
        listed = there.operator.get(path(there)).content.decode()
        assert f"replay, {DEFAULT}, 24 h" in " ".join(listed.split())

    def test_invalid_field_is_named(self, there: Town) -> None:
        for fields, words in WRONG:
            answer = ask(there, **fields)
            assert answer.status_code == 422
            assert words in answer.content.decode(), fields
        assert not Simulation.objects.exists()

    def test_too_many_jobs_or_none_are_refused(
        self, there: Town, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(service, "REPLAYED_MOST", 9)
        page = ask(there).content.decode()
        assert "4 jobs under 3 policies are too many for one replay. The most is 3 jobs" in page
        Job.objects.update(submitted_at=there.cluster.at - timedelta(days=2))
        assert "was submitted in the last day. Choose more days." in ask(there).content.decode()
        assert not Simulation.objects.exists()

    def test_auditor_reads_but_changes_nothing(self, there: Town) -> None:
        row = replay(there)
        auditor = visitor("ann", site_role=User.SiteRole.AUDITOR)
        page = auditor.get(path(there, row.pk)).content.decode()
        assert "Tenants are not shown their results." in page
        assert "r-again" not in page
        assert auditor.post(f"{path(there, row.pk)}show/", {"is_shown": "yes"}).status_code == 403
        assert auditor.post(path(there), {"do": "history"}).status_code == 403


class TestOddRows:
    def test_break_nothing(self, there: Town, monkeypatch: pytest.MonkeyPatch) -> None:
        """A tenant's quota ended, a job needs a removed type, a policy was uninstalled."""
        lab = there.cluster
        first = replay(there)
        lab.add_type("k80", nodes=1, gpus=1, quotas={"south": 1})
        lab.submit("south", 1, 60, gpu_types=["k80"])
        Node.objects.filter(gpu_type__name="k80").delete()
        Quota.objects.filter(tenant=lab.tenants["south"], gpu_type__name="v100").update(
            valid_until=lab.at
        )
        ask(there)
        monkeypatch.delitem(POLICIES, "drf")
        row = execute()
        assert row.state == "done", row.error
        result = result_of(row)
        assert [run["policy"] for run in result["policies"]] == [DEFAULT, "fifo"]
        assert "A policy is left out: no policy is named 'drf'" in result["remarks"][0]
        assert result["pool"][0]["never_ending"] == 1
        page = there.operator.get(path(there, row.pk)).content.decode()
        assert cells(page, "ended")[:2] == ["4 of 5"] * 2
        assert "drf" in there.operator.get(path(there, first.pk)).content.decode()

    def test_other_policy_of_the_pool_fails_with_reason(self, there: Town) -> None:
        ask(there)
        Pool.objects.update(policy="fifo")
        row = execute()
        assert row.state == "failed"
        assert row.error.startswith("The pool's policy changed after the request.")

    def test_no_installed_policy_fails_with_reason(
        self, there: Town, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ask(there, policies=["fifo"])
        monkeypatch.delitem(POLICIES, "fifo")
        monkeypatch.delitem(POLICIES, DEFAULT)
        row = execute()
        assert row.state == "failed"
        assert row.error.startswith(f"No policy is named '{DEFAULT}'")


class TestTenant:
    def test_sees_it_only_while_operator_shows_it(self, there: Town) -> None:
        row = replay(there)
        address, key = "/t/north/replays/", f"replay-{row.pk}"
        assert f'href="{address}"' in there.owner.get("/t/north/").content.decode()
        page = there.owner.get(address).content.decode()
        assert "No replay shows north under other policies." in page
        shown = show(there, row, is_shown="yes").content.decode()
        assert "Each tenant is shown its own result." in shown
        assert "checked" in shown.split('name="is_shown"')[1].partition(">")[0]
        assert key in there.owner.get(address).content.decode()
        show(there, row)
        assert AuditRecord.objects.filter(action="simulation.hidden").count() == 1
        assert key not in there.owner.get(address).content.decode()

    def test_sees_nothing_of_others_or_the_pool(self, there: Town) -> None:
        """All figures of the other tenant and the pool, and all texts, are marked."""
        row = replay(there)
        show(there, row, is_shown="yes")
        south = there.cluster.tenants["south"].pk
        result = dict(result_of(row))
        for runs in (result["pool"], result["tenants"][str(south)]):
            for run in runs:
                run.update(dict.fromkeys(run, 7_654_321))
        result["remarks"] = ["7654321"]
        result["jobs"] = 7_654_321
        for run in result["policies"]:
            run.update(sha256="7654321", options={"bonus": 7_654_321}, rounds=7_654_321)
        Simulation.objects.filter(pk=row.pk).update(result=result, snapshot_sha256="7654321")
        page = there.owner.get("/t/north/replays/").content.decode()
        assert f"replay-{row.pk}" in page
        for mark in ("7654321", "7,654,321", "7.65", "765,432,100", "south"):
            assert mark not in page, mark
        queries = reads(there.owner, "/t/north/replays/")
        (sql,) = [one for one in queries if '"scheduling_simulation"' in one]
        north = there.cluster.tenants["north"].pk
        own = (f" #> '{{tenants,{north}}}'", " -> 'policies'", f" -> 'tenants') ? '{north}'")
        assert all(part.startswith(own) for part in sql.split('"result"')[1:])
        assert there.outsider.get("/t/north/replays/").status_code == 404
        assert there.neighbour.get("/t/north/replays/").status_code == 404

    def test_unfinished_or_other_simulation_is_never_shown(self, there: Town) -> None:
        ask(there)
        row = Simulation.objects.get()
        page = show(there, row, is_shown="yes").content.decode()
        assert "Only finished replays can be shown to tenants." in page
        row.refresh_from_db()
        assert not row.is_shown
