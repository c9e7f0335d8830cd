"""The state of a pool's executor, for display."""

import json
import re
from collections.abc import Collection, Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple

from scheduling.models import ExecutorHealth, Pool

# Errors of adapters and tools that mean that the engine did not answer. Any other error is an
# answer of the engine.
_SILENCE = re.compile(
    r"(did|does|do) not answer|timed? ?out|unable to contact|unreachable|"
    r"connection (refused|reset|closed|failure|aborted)|connect failure|no route to host|"
    r"name or service not known|name resolution|zero bytes were transmitted|"
    r"unable to establish controller|endpoint is not connected|"
    r"could not establish a configuration source|broken pipe",
    re.IGNORECASE,
)


class SilentPool(NamedTuple):
    """A pool whose executor failed and is currently not called, and since when (wall time)."""

    name: str
    since: datetime


def pools_by_name(pools: Collection[int]) -> dict[str, SilentPool | None]:
    """Return pools by name, with a `SilentPool` if their executor is not called. A single query."""
    rows = Pool.objects.filter(pk__in=pools).order_by("name")
    health = ("executor_health__open_until", "executor_health__failing_since")
    return {
        name: SilentPool(name, since) if is_open and since else None
        for name, is_open, since in rows.values_list("name", *health)
    }


def silent_pools(pools: Collection[int]) -> list[SilentPool]:
    """Return the pools whose executor is currently not called, by name. A single query."""
    rows = ExecutorHealth.objects.filter(
        pool__in=pools, open_until__isnull=False, failing_since__isnull=False
    )
    named = rows.order_by("pool__name").values_list("pool__name", "failing_since")
    return [SilentPool(name, since) for name, since in named if since is not None]


def is_refusal(error: str) -> bool:
    """Return whether an error came from the engine itself: it answered, and refused the call."""
    return bool(error) and not _SILENCE.search(error)


def name_of_options(options: Mapping[str, Any]) -> str:
    """Return a hash that identifies an executor's options."""
    return sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()[:32]
