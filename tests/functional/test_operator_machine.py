"""Late rounds, processes and the machine in the operator's queue."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

import pytest

from portal.embedded.clocks import ClockReading, note_clocks
from portal.embedded.restarts import note_restart
from portal.operate.text.machine import machine_alerts
from scheduling.engine.clock import wall_now
from scheduling.models import PoolClock, PoolFence
from tests.factories import cluster
from tests.functional.pool_stage import headline
from tests.functional.visitors import Town, town
from tests.stages import staged


def played_town() -> Town:
    made = town()
    made.play(1)
    return made


there = staged(played_town)


def queue_page(there: Town) -> str:
    answer = there.operator.get("/operate/")
    assert answer.status_code == 200
    return str(answer.content.decode())


class TestLateRounds:
    def test_alert_explains_late_rounds(self, there: Town) -> None:
        PoolClock.objects.filter(pool=there.cluster.pool).update(
            anchor_pool=there.cluster.at + timedelta(hours=1)
        )
        PoolFence.objects.update(until=wall_now())
        shown = queue_page(there)
        assert f"Pool {there.cluster.pool.name} had no round for 1 h." in shown
        assert "The round worker is behind: its last round ended " in shown
        PoolFence.objects.update(until=wall_now() - timedelta(hours=1))
        assert "check that beat and the round worker" in queue_page(there)
        PoolFence.objects.update(until=wall_now() + timedelta(hours=1), holder="a worker")
        assert "The round worker is busy with pool-" in queue_page(there)
        health = there.operator.get(f"/operate/pools/{there.cluster.pool.name}/health/")
        assert headline(health.content.decode()) == f"Rounds of {there.cluster.pool.name} are late."

    def test_alert_reports_new_pool_without_first_round(self, there: Town) -> None:
        new = cluster({"t": 1}).pool
        waits = f"Pool {new.name} had no round for 1 h."
        assert waits not in queue_page(there)
        PoolClock.objects.filter(pool=new).update(anchor_wall=wall_now() - timedelta(hours=1))
        assert waits in queue_page(there)
        later = there.cluster.at + timedelta(hours=3)
        PoolClock.objects.filter(pool=there.cluster.pool).update(anchor_pool=later)
        shown = queue_page(there)
        assert shown.index("had no round for 3 h") < shown.index(waits)


class TestMachineAlerts:
    def test_report_restarted_process_with_reason(
        self, there: Town, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("EVENSHARE_RUN_DIR", str(tmp_path))
        note_restart(tmp_path, "beat", "no sign of life", at=time.time() - 2 * 3600)
        why = "it has received no message for 121 s"
        note_restart(tmp_path, "worker-rounds", why, at=time.time(), next_after_s=240)
        shown = queue_page(there)
        assert "worker-rounds was restarted 1 time" in shown
        assert why in shown
        assert "waits 4 min after" in shown
        assert "beat was restarted" not in shown

    @pytest.mark.parametrize(
        ("wall_s", "with_sleep_s", "words"),
        [
            (3600, 0, "clock was set ahead by 1 h."),
            (-600, 0, "clock was set back by 10 min."),
            (3600, 3600, "The machine slept for 1 h."),
            (1, 1, ""),
        ],
    )
    def test_report_clock_jumps(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        *,
        wall_s: float,
        with_sleep_s: float,
        words: str,
    ) -> None:
        monkeypatch.setenv("EVENSHARE_RUN_DIR", str(tmp_path))
        now = time.time()
        before = ClockReading(now - wall_s, 0.0, 0.0)
        note_clocks(tmp_path, before, ClockReading(now, 0.0, with_sleep_s))
        titles = [alert.title for alert in machine_alerts()]
        assert len(titles) == bool(words)
        assert all(title.endswith(words) for title in titles)
