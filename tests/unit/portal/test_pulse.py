"""The watch on the queues: who is late, and when."""

from pathlib import Path

from portal.embedded.pulse import PATIENCE_S, PulseWatch, touch


class TestAPulseWatch:
    def test_is_quiet_while_the_queue_is_consumed(self, tmp_path: Path) -> None:
        watch = PulseWatch(tmp_path, now=0.0, queues=["default"])
        for now in range(0, 200, 10):
            (tmp_path / "pulse-default").unlink(missing_ok=True)
            touch(tmp_path, "default")
            assert watch.stalled(float(now)) == []

    def test_names_a_queue_that_never_began(self, tmp_path: Path) -> None:
        watch = PulseWatch(tmp_path, now=0.0, queues=["default"])
        assert watch.stalled(PATIENCE_S["default"]) == []
        assert watch.stalled(PATIENCE_S["default"] + 1) == ["default"]

    def test_gives_the_restarted_worker_its_full_patience(self, tmp_path: Path) -> None:
        watch = PulseWatch(tmp_path, now=0.0, queues=["default"])
        late = PATIENCE_S["default"] + 1
        assert watch.stalled(late) == ["default"]
        assert watch.stalled(late + PATIENCE_S["default"]) == []
        assert watch.stalled(late + PATIENCE_S["default"] + 1) == ["default"]

    def test_lets_a_round_solve_longer_than_a_tick(self, tmp_path: Path) -> None:
        watch = PulseWatch(tmp_path, now=0.0)
        assert watch.stalled(PATIENCE_S["default"] + 1) == ["default"]
        assert PATIENCE_S["rounds"] > 3 * PATIENCE_S["default"]

    def test_ignores_what_the_former_run_left(self, tmp_path: Path) -> None:
        touch(tmp_path, "default")
        watch = PulseWatch(tmp_path, now=0.0, queues=["default"])
        assert watch.stalled(PATIENCE_S["default"] + 1) == ["default"]
