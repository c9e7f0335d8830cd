"""Provide pools with a queue: one for tests of REST, and a `Town` whose clock is paused."""

from __future__ import annotations

import html
import re
from typing import Any

from scheduling.models import PoolClock
from tests.functional.api_stage import ApiStage, api_stage
from tests.functional.visitors import Town, town


def queue_stage() -> ApiStage:
    """Create a pool whose eight GPUs bb holds; aa's jobs come first among five in the queue."""
    stage = api_stage(lease_s=3600)
    stage.person("eve", site_role="operator")
    for _ in range(2):
        stage.cluster.submit("bb", 4, 9000)
    stage.cluster.round()
    for after, tenant in enumerate(("bb", "aa", "bb", "aa", "aa")):
        stage.cluster.submit(tenant, 2, 9000, after_s=after)
    stage.cluster.round(after_s=10)
    return stage


def queue(stage: ApiStage, **more: Any) -> Any:
    return stage.get(f"pools/{stage.pool}/queue", **more).json()


def queue_town() -> Town:
    """Create a town in which south holds the pool; three jobs of north and one of south are queued.

    The pool's clock is paused at its last round.
    """
    place = town()
    for _ in range(2):
        place.submit(4, 9000, "south")
    place.play()
    for gpus in (2, 1, 1):
        place.submit(gpus, 9000)
    place.submit(1, 9000, "south")
    place.play()
    # Pause the clock, so that time differences do not depend on the speed of the machine.
    PoolClock.objects.update(paused=True, pause_reason="maintenance")
    return place


def text(page: Any) -> str:
    """Return a page's text in one line, without tags."""
    assert page.status_code == 200
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", page.content.decode())))
