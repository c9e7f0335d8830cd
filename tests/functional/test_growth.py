"""Test that no request, task or round reads more because the past or the queue is longer.

Each runs on three stages: a short past and queue, a past ten times as long, and a queue ten times
as long. The database counts the rows that its scans return. `GROWTH_TABLE=<file>` writes them all;
docs/testing.md lists those that grow.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from django.test import Client
from django.utils import timezone

from billing.tasks import drop_files, log_new_transfers, meter
from scheduling.engine.refits import is_refit_due
from scheduling.models import PoolClock
from scheduling.selectors.jobs import queue_order
from scheduling.services.forecasts import claim_forecast
from scheduling.tasks import archive, housekeeping, rounds, seal, simulations, tick
from tests.functional.access_table import ASKED_FOR, TABLE, Route
from tests.functional.addresses import fill, is_api, template_of, words_of
from tests.functional.crawl import asked
from tests.functional.grown_stage import GrownStage, grow, short_stage
from tests.functional.reading import Reading, reading_of, vacuum
from tests.plugin import Services
from tests.stages import Stages

SMALL, LONG_PAST, LONG_QUEUE = (50, 100), (500, 100), (50, 1000)
# If a size grows tenfold, reads may grow by this factor and margin, because the same rows of a
# longer queue are in more blocks.
FACTOR, MARGIN = 2, Reading(rows=250, blocks=500)
# Finding one row by an index reads at most this many blocks. PostgreSQL may choose another plan for
# the same rows from run to run.
BLOCKS_OF_A_ROW = 4
# The stage's rounds are old. Its forecast and its simulation have no result.
FAILING = ("/readyz", "/pools/pool-1/starts/", "/operate/pools/pool-1/what-if/1/")
PERIOD = "sums over the requested period, here all time"
WINDOW = "reads a window of days; in tables this small PostgreSQL uses no index"
COUNTED = "counts the waiting jobs, by an index"
NOT_FOUND = "index entries of intents that no query plan shows; later rounds read none"
SNAPSHOT = "a round is decided from all waiting jobs"
# URLs that may read more, and why.
PAST_GROWS = {
    "t/<slug:slug>/ledger/statement/": PERIOD,
    "t/<slug:slug>/ledger/statement.csv": PERIOD,
    "t/<slug:slug>/ledger/contribution/": PERIOD,
    "pools/<slug:name>/revenue/": PERIOD,
    "api/v1/contribution": WINDOW,
    "api/v1/entries": WINDOW,
    "api/v1/pools/<slug:name>/revenue-fairness": WINDOW,
    "metrics": "rounds since the last scrape, at most 5,000; this is the first scrape",
    "t/<slug:slug>/jobs/": "counts at most 1,000 jobs of the pool",
    "t/<slug:slug>/jobs/new/": "reads the last 1,000 jobs to find a free name for a clone",
    "operate/pools/<slug:name>/health/": "adds up the stored rounds by day",
    "pools/<slug:name>/trades/<int:number>/": "reads later trades at the same rate",
    "api/v1/ledgers/<slug:book>/chain/records": "returns up to 500 records",
    "task rounds": NOT_FOUND,
    "task housekeeping": "compares a part of the stored rows, and deletes old ones",
    "task log all": "compares at most 1,000 transfers",
    "task archive": "writes rounds that are old enough to files",
}
QUEUE_GROWS = {
    "t/<slug:slug>/": COUNTED,
    "pools/<slug:name>/": COUNTED,
    "t/<slug:slug>/jobs/": "counts at most 1,000 jobs of the pool",
    "t/<slug:slug>/jobs/new/": "reads the last 1,000 jobs to find a free name for a clone",
    "operate/": COUNTED,
    "operate/pools/<slug:name>/what-if/": COUNTED,
    "metrics": COUNTED,
    "task rounds": SNAPSHOT,
    "round": SNAPSHOT,
    "round after it": SNAPSHOT,
    "task seal": "a sealed round has a part for each waiting job",
}


class TestQueryCounts:
    @pytest.fixture(autouse=True)
    def few_first(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Treat queues of 100 jobs or more as long, so that the queues of both stages are long."""
        monkeypatch.setattr(queue_order, "FIRST_JOBS", 50)

    def test_do_not_grow_with_history_or_queue(self, stages: Stages, services: Services) -> None:
        small = _read(stages, services, *SMALL)
        past = _read(stages, services, *LONG_PAST)
        queue = _read(stages, services, *LONG_QUEUE)
        _write_table(small, past, queue)
        wrong = [
            f"{name}: {size} read {more}, and {small[name]} before"
            for size, found, excused in (
                ("a longer past", past, PAST_GROWS),
                ("a longer queue", queue, QUEUE_GROWS),
            )
            for name, more in found.items()
            if _is_growth(small[name], more) and not _excuse(name, excused)
        ]
        assert not wrong, "\n".join(wrong)
        assert len(small) > 100


def _is_growth(small: Reading, more: Reading) -> bool:
    blocks = FACTOR * small.blocks + MARGIN.blocks + BLOCKS_OF_A_ROW * more.rows
    return more.rows > FACTOR * small.rows + MARGIN.rows or more.blocks > blocks


def _excuse(name: str, excused: dict[str, str]) -> str:
    """Return why a URL may read more, with or without its query."""
    exact = [begin for begin in excused if name.partition("?")[0] == begin]
    begins = exact or [
        begin for begin in excused if name.startswith(begin) and begin != "t/<slug:slug>/"
    ]
    return excused[max(begins, key=len)] if begins else ""


def _read(stages: Stages, services: Services, copies: int, queued: int) -> dict[str, Reading]:
    with stages.copy_of(short_stage) as copy, services.postgres.connect(copy.name) as session:
        grow(copy.made, session, copies=copies, queued=queued)
        read = {name: reading_of(act) for name, act in _requests(copy.made)}
        for name, act in _tasks(copy.made):
            # The planner reads the ends of an index, where it skips entries of deleted rows. Their
            # number depends on transactions in other databases of the server.
            vacuum(session)
            read[name] = reading_of(act)
        return read


def _requests(made: GrownStage) -> Iterator[tuple[str, Callable[[], object]]]:
    for address, route in (*TABLE.items(), *ASKED_FOR):
        if "GET" not in route.methods or not made.words.keys() >= set(words_of(address, route)):
            continue
        path = fill(template_of(address, route), made.words)
        client = made.client(_who(route), api=is_api(address))
        name = address + ("?" + route.query if route.query else "")
        yield name, partial(_look, client, path)


def _look(client: Client, path: str) -> None:
    """Send a request that must succeed, because a failing one would read little."""
    status = asked(client, path).status_code
    assert status < 500 or path in FAILING, f"{status} {path}"


def _who(route: Route) -> str:
    """Return the requester: the tenant's manager, else the operator."""
    return "manager" if route.methods["GET"].manager in (200, 302) else "operator"


def _tasks(made: GrownStage) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield beat's tasks and rounds. The first round after the stage belongs to the task."""
    due = made.lab.at + timedelta(seconds=60)
    PoolClock.objects.filter(pool=made.lab.pool).update(anchor_pool=due, anchor_wall=timezone.now())
    yield from {
        "task tick": tick, "task rounds": rounds, "task meter": meter,
        "task log": log_new_transfers,
        "task log all": lambda: log_new_transfers(look_at_all=True),
        "task archive": archive, "task drop files": drop_files,
        "task housekeeping": housekeeping, "task simulations": simulations,
        "is a refit due": is_refit_due, "claim a forecast": claim_forecast,
    }.items()  # fmt: skip
    yield "round", lambda: made.lab.round(after_s=300)
    yield "task seal", lambda: seal(made.lab.pool.pk)
    yield "round after it", lambda: made.lab.round(after_s=300)


def _write_table(*read: dict[str, Reading]) -> None:
    """Write the rows read at each size, largest first."""
    path = os.environ.get("GROWTH_TABLE")
    if not path:
        return
    small, past, queue = read
    lines = [
        "| address or task | rows read | past x 10 | queue x 10 | why more |",
        "|---|---|---|---|---|",
    ]
    for name in sorted(small, key=lambda name: -max(found[name].rows for found in read)):
        excuses = [
            _excuse(name, excused)
            for found, excused in ((past, PAST_GROWS), (queue, QUEUE_GROWS))
            if _is_growth(small[name], found[name])
        ]
        rows = " | ".join(f"{found[name].rows:,}" for found in read)
        lines.append(f"| `{name}` | {rows} | {'; '.join(excuses)} |")
    Path(path).write_text("\n".join(lines) + "\n")
