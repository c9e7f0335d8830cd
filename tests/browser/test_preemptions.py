"""Test pages with preemptions in a real browser: they fit and are accessible."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from evenshare_core.policies import registry
from scheduling.engine.clock import wall_now
from scheduling.models import Job, Lease, LeaseEvent, Pool, PoolClock, Round
from tests.browser.axe import serious
from tests.browser.complaints import complaints_of
from tests.browser.session import give_session
from tests.functional.pool_stage import Stage, stage
from tests.stages import Copy, copied, name_of_copy
from tests.toy_policy.preempting import POLICY

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(autouse=True)
def policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.POLICIES, POLICY.name, POLICY)


def preempted_stage() -> Stage:
    """Create a pool in which two jobs of alpha were preempted for beta, and one moved."""
    made = stage()
    lab = made.lab
    Pool.objects.filter(pk=lab.pool.pk).update(
        policy=POLICY.name, options={"min_runtime_s": 600}, visibility="full"
    )
    lab.pool.refresh_from_db()
    lab.round(after_s=300)
    taker = lab.submit("beta", 3, 2400)
    lab.round(after_s=300)
    Job.objects.filter(pk=taker.pk).update(cancel_asked_at=lab.at)
    lab.round(after_s=60)
    lab.round(after_s=620)
    lab.submit("beta", 3, 40_000)
    lab.round(after_s=60)
    lab.round(after_s=60)
    lab.submit("alpha", 1, 40_000)
    lab.round(after_s=60)
    PoolClock.objects.filter(pool=lab.pool).update(
        anchor_pool=lab.at + timedelta(seconds=20), anchor_wall=wall_now(), paused=True
    )
    return made


copy = copied(preempted_stage)
committed_db = name_of_copy


@pytest.fixture
def there(copy: Copy[Stage]) -> Stage:
    return copy.made


@pytest.fixture(params=["owner", "neighbour"])
def visit(
    there: Stage, site: str, browser: Browser, request: pytest.FixtureRequest
) -> Iterator[tuple[str, Page]]:
    who = request.param
    context = browser.new_context(base_url=site)
    give_session(context, there.client(who), site)
    opened = context.new_page()
    yield who, opened
    context.close()


def paths(there: Stage, who: str) -> dict[str, str]:
    """Return the paths of the pool's history, of two jobs of alpha, and of the preempting round.

    A beneficiary gets only the path of its job.
    """
    if who == "neighbour":
        notice = LeaseEvent.objects.filter(data__has_key="rule").latest("id")
        return {"beneficiary": f"/jobs/{Job.objects.get(pk=notice.data['for_job']).uid}/"}
    preempted = Lease.objects.filter(end_reason="preempted").latest("id")
    alpha = Job.objects.filter(tenant=there.tenant("alpha"), state="running")
    protected = alpha.order_by("-id")[0]
    number = Round.objects.filter(summary__has_key="preempted").latest("number").number
    return {
        "pool": there.url("history/"),
        "preempted": f"/jobs/{preempted.job.uid}/",
        "running": f"/jobs/{protected.uid}/",
        "round": there.url(f"rounds/{number}/"),
    }


class TestPreemptionPages:
    def test_fit_window_without_errors_and_are_accessible(
        self, there: Stage, visit: tuple[str, Page]
    ) -> None:
        who, page = visit
        complaints = complaints_of(page)
        for name, path in paths(there, who).items():
            page.goto(path)
            for width in (1440, 390):
                page.set_viewport_size({"width": width, "height": 900})
                assert page.evaluate("document.documentElement.scrollWidth") <= width, name
                assert (name == "beneficiary") == ("Made way for it:" in page.inner_text("main"))
            assert serious(page) == [], name
        assert complaints == []
