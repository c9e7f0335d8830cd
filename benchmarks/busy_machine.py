"""Benchmark of the demo on a busy machine: it may become slow, but must not fail.

Run `python -m benchmarks.busy_machine [BUSY] [MINUTES]`. It starts BUSY endless loops, each in a
separate session, and then `manage.py up` in an empty data folder. It prints the time until the
portal was ready, the restarts of processes in the next MINUTES, and the times of the front page.
For each pool it prints the median time between two checks, as a multiple of the pool's interval. A
check counts even if it finds nothing to decide and stores no round. The goals are no restart, and
multiples that differ by a factor of at most three between pools.
"""

import re
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

from tests.busy import busy
from tests.integration.tree import RunningTree
from tests.ports import free_port

BUSY, MINUTES = 16, 15.0
EVERY_S, PAGE_EVERY_S = 0.5, 30.0
MOST_RATIO = 3.0
CHECKED = """
SELECT coalesce(json_object_agg(p.name, json_build_array(
    p.round_s, f.last_checked_at, coalesce(x.error, '')
)), '{}')
FROM scheduling_pool p
JOIN scheduling_poolfence f ON f.pool_id = p.id
JOIN scheduling_poolclock c ON c.pool_id = p.id
LEFT JOIN scheduling_roundfailure x ON x.pool_id = p.id
WHERE NOT c.paused
"""
RESTART = re.compile(r" starts anew: | ended \(")


class PoolTimes:
    """The times at which each pool's fence changed, by this process's clock."""

    def __init__(self) -> None:
        self.round_s: dict[str, int] = {}
        self.errors: dict[str, str] = {}
        self._began = time.monotonic()
        self._last: dict[str, object] = {}
        self._at: dict[str, list[float]] = {}

    def look(self, rows: dict[str, tuple[int, object, str]]) -> None:
        """Record the pools that were checked since the last call."""
        now = time.monotonic()
        for name, (round_s, checked, error) in rows.items():
            self.round_s[name] = round_s
            if error:
                self.errors[name] = error
            if name not in self._at:
                self._at[name] = []
            elif checked != self._last[name]:
                self._at[name].append(now)
            self._last[name] = checked

    def waits(self) -> dict[str, list[float]]:
        """Return the seconds between consecutive checks of each pool.

        For a pool with fewer than two checks, return the length of the watch.
        """
        watched_s = time.monotonic() - self._began
        return {
            name: [later - earlier for earlier, later in pairwise(at)] or [watched_s]
            for name, at in self._at.items()
        }


def watch(tree: RunningTree, minutes: float) -> tuple[PoolTimes, list[float], int]:
    """Return the times of checks and of the front page, and the number of unanswered requests."""
    times, pages, failed = PoolTimes(), list[float](), 0
    end, next_page = time.monotonic() + minutes * 60, 0.0
    while (now := time.monotonic()) < end:
        if now >= next_page:
            next_page = now + PAGE_EVERY_S
            failed += tree.front_page() not in (200, 302)
            pages.append(time.monotonic() - now)
        rows = tree.query(CHECKED)
        if isinstance(rows, dict):
            times.look(rows)
        time.sleep(EVERY_S)
    return times, pages, failed


def main(processes: int = BUSY, minutes: float = MINUTES) -> int:
    """Print the figures; return 1 if the run misses a goal."""
    with tempfile.TemporaryDirectory() as folder, busy(processes):
        began = time.monotonic()
        tree = RunningTree(Path(folder) / "data", free_port())
        try:
            # If a process hangs, the supervisor exits by itself.
            while "ready in" not in tree.text() and not tree.ended():
                time.sleep(EVERY_S)
            ready_s = time.monotonic() - began
            before = len(tree.text().splitlines())
            times, pages, failed = watch(tree, minutes)
            said = tree.text().splitlines()[before:]
        finally:
            tree.interrupt()
            tree.end()
    restarts = [line for line in said if RESTART.search(line)]
    waits = times.waits()
    multiples = {name: median(waits[name]) / times.round_s[name] for name in waits}
    ratio = max(multiples.values()) / min(multiples.values())
    print(f"next to {processes} busy processes: ready after {ready_s:.0f} s")
    print(f"in {minutes:g} minutes: {len(restarts)} restarts (goal 0)")
    for line in restarts:
        print(f"  {line}")
    print(
        f"front page: median {median(pages):.1f} s, most {max(pages):.1f} s,"
        f" {failed} of {len(pages)} without an answer"
    )
    for name, multiple in sorted(multiples.items()):
        asked = times.round_s[name]
        print(
            f"  {name:<14} every {asked:3} s: {multiple * asked:6.1f} s, {multiple:5.1f} times,"
            f" longest {max(waits[name]):6.1f} s, {len(waits[name])} waits"
        )
        if name in times.errors:
            print(f"    a round failed: {times.errors[name]}")
    print(f"most over least: {ratio:.1f} (goal {MOST_RATIO:g})")
    return 1 if restarts or failed or ratio > MOST_RATIO else 0


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(main(*map(int, given[:1]), *map(float, given[1:2])))
