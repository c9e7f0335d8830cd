"""Test counters that processes share: their sums remain when a process ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.architecture.sources import ROOT

# A program that counts up to its argument, and keeps its counter until it is killed.
PROGRAM = """
import sys
from portal.site.shared_counts import kept, share
share()
from prometheus_client import Counter
counter = Counter("things", "Things.", ["kind"], registry=None)
for _ in range(int(sys.argv[1])):
    counter.labels("a").inc()
    with kept("sums", {}) as sums:
        sums["a"] = sums.get("a", 0) + 1
print("counted", flush=True)
sys.stdin.read()
"""
SUM = """
import os
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
registry = CollectorRegistry()
MultiProcessCollector(registry, path=os.environ["EVENSHARE_RUN_DIR"] + "/web")
print(generate_latest(registry).decode())
"""


def counting(run: Path, times: int) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(times)],
        cwd=ROOT,
        env={**os.environ, "EVENSHARE_RUN_DIR": str(run)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "counted\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def total(run: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SUM],
        env={**os.environ, "EVENSHARE_RUN_DIR": str(run)},
        capture_output=True,
        text=True,
        check=True,
    )
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("things_total{")]
    return row.rpartition(" ")[2]


def test_counts_are_shared_and_survive_processes(tmp_path: Path) -> None:
    web = tmp_path / "web"
    first, second = counting(tmp_path, 3), counting(tmp_path, 4)
    assert total(tmp_path) == "7.0"
    kill(first)
    assert total(tmp_path) == "7.0", "what it had counted stays"
    files = len(list(web.glob("counter_*")))
    third = counting(tmp_path, 5)
    assert total(tmp_path) == "12.0"
    assert len(list(web.glob("counter_*"))) == files, "it took the place that was free"
    assert (web / "sums.json").read_text() == '{"a": 12}'
    assert web.stat().st_mode & 0o077 == 0
    for process in (second, third):
        kill(process)
