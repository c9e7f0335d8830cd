"""The promise of a quota: the same on every page and in the API, by policy and options."""

from __future__ import annotations

import pytest
from django.db.models import F

from scheduling.models import Lease, Pool, PoolClock
from tests.functional.page_text import sentences
from tests.functional.visitors import Town, town
from tests.stages import staged

LABELS = {
    # a lease of 900 s, plus two rounds of 10 s, plus a notice of 30 s
    "evenshare": "guaranteed within 15 min 50 s",
    "ltgf": "a long-term target",
    "yarn_cs": "reserved for its tenant",
    "oef": "a weight, not a guarantee",
    "fifo": "not guaranteed",
}


def played_town() -> Town:
    made = town()
    made.submit(2, 9_000)
    made.play(2)
    # Stop pool time: no round is late or due.
    PoolClock.objects.update(paused=True, pause_reason="maintenance")
    return made


there = staged(played_town)


def set_policy(there: Town, policy: str, **options: object) -> None:
    Pool.objects.filter(pk=there.cluster.pool.pk).update(policy=policy, options=options)


class TestPool:
    @pytest.mark.parametrize("policy", LABELS)
    def test_shows_same_promise_on_every_page(self, there: Town, policy: str) -> None:
        set_policy(there, policy)
        name, label = there.cluster.pool.name, LABELS[policy]
        shown = sentences(there.owner.get("/t/north/").content.decode())
        assert f"The quota is {label}" in shown
        for path in (f"/pools/{name}/", f"/operate/pools/{name}/quotas/"):
            answer = there.operator.get(path)
            assert f"A quota here is {label}" in sentences(answer.content.decode()), path
        settings = there.operator.get(f"/operate/pools/{name}/settings/").content.decode()
        assert f"Quota: {label}." in sentences(settings)
        assert "Now it is" not in sentences(settings)

    @pytest.mark.parametrize(("policy", "early"), [("evenshare", True), ("ltgf", False)])
    def test_states_whether_borrowed_gpus_may_return_early(
        self, there: Town, policy: str, early: bool
    ) -> None:
        set_policy(there, policy)
        Lease.objects.filter(tenant__slug="north").update(own=0, borrowed=F("gpus"))
        shown = sentences(there.owner.get("/t/north/").content.decode())
        assert "A borrowed GPU goes back at the end of its term" in shown
        assert ("of its term, or with notice before it, when its owner" in shown) == early

    def test_lists_parts_and_conditions_of_guaranteed_time(self, there: Town) -> None:
        shown = sentences(there.owner.get("/t/north/").content.decode())
        for part in (
            "a lease of the jobs that make room 15 min",
            "until the next two rounds 20 s",
            "their notice 30 s",
            "at most, in pool time 15 min 50 s",
            "The tenant is below its fair share of GPU-time",
            "no limit of its tenant refuses it",
        ):
            assert part in shown

    def test_promise_follows_options_and_round_lengths(self, there: Town) -> None:
        path = f"/pools/{there.cluster.pool.name}/"
        set_policy(there, "evenshare", promises=False, preset="tight")
        Pool.objects.update(round_s=5, grace_s=0)
        PoolClock.objects.update(scale=60)
        shown = sentences(there.owner.get(path).content.decode())
        assert "guaranteed within 6 min" in shown  # 60 s, plus a round of 5 s at scale 60
        assert "95 %" not in shown
        set_policy(there, "evenshare", promises=False, guarantee=False)
        assert "a long-term target" in sentences(there.owner.get(path).content.decode())

    def test_omits_promise_of_missing_policy(self, there: Town) -> None:
        set_policy(there, "gone")
        shown = sentences(there.owner.get(f"/pools/{there.cluster.pool.name}/").content.decode())
        assert "A quota here is" not in shown
        answer = there.owner.get(f"/api/v1/pools/{there.cluster.pool.name}").json()
        assert answer["quota_promise"] is None


class TestSettings:
    def test_compare_promise_of_another_policy(self, there: Town) -> None:
        path = f"/operate/pools/{there.cluster.pool.name}/settings/"
        shown = sentences(there.operator.get(f"{path}?policy=ltgf").content.decode())
        assert "Quota: a long-term target. Now it is guaranteed within 15 min 50 s." in shown

    def test_preview_promise_of_edited_options(self, there: Town) -> None:
        path = f"/operate/pools/{there.cluster.pool.name}/settings/"
        data = {
            "do": "preview", "policy": "evenshare", "visibility": "own", "round_s": "30",
            "lease_s": "900", "grace_s": "60", "outage_grace_s": "60", "idle_warn_s": "1800",
            "idle_return_s": "0", "option-preset": "standard",
            "option-min_runtime_s": "600",
        }  # fmt: skip
        shown = sentences(there.operator.post(path, data).content.decode())
        assert "Quota: guaranteed within 17 min. Now it is guaranteed" in shown
        wrong = there.operator.post(path, {**data, "option-min_runtime_s": "long"})
        assert "Quota: guaranteed" not in sentences(wrong.content.decode())


class TestApi:
    def test_returns_promise_with_parts(self, there: Town) -> None:
        answer = there.owner.get(f"/api/v1/pools/{there.cluster.pool.name}").json()
        promise = answer["quota_promise"]
        assert (promise["kind"], promise["within_s"]) == ("guaranteed", 950)
        assert [part["length_s"] for part in promise["parts"]] == [900, 20, 30]
        assert len(promise["conditions"]) == 5
        set_policy(there, "ltgf")
        (row,) = there.owner.get("/api/v1/pools").json()["results"]
        assert (row["quota_promise"]["kind"], row["quota_promise"]["within_s"]) == (
            "long_term",
            None,
        )
