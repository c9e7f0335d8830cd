"""Test a shim's samples of real processes, which take limited space."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.engine.executors.local_usage import GpuState, NodeUsage
from scheduling.engine.executors.shim import usage as shim_usage
from scheduling.engine.executors.shim.gpus import GpuReading, read_gpus
from scheduling.engine.executors.shim.usage import CpuMeter, SampleCourse, family, rows_of_each
from tests.tools import PATIENCE_S, eventually
from tests.unit.scheduling.shim_stage import ShimStage, fake_tool

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")

BUSY = f'{sys.executable} -S -c "import time\nwhile time.process_time() < {{0}}: pass"'
ONE_GPU = 'echo "0, GPU-a, 55, 1000, 80000"'


@pytest.fixture
def stage(tmp_path: Path) -> ShimStage:
    return ShimStage(tmp_path / "jobs")


class TestProgramCpuTime:
    def test_sums_all_processes_until_end(self, stage: ShimStage) -> None:
        # The first busy process runs in the background below another shell, the second in the
        # foreground.
        busy = BUSY.format(0.3)
        rows = stage.run(f"sh -c '{busy}; true' & {busy}; wait").rows
        assert 600 <= rows[-1].cpu_ms < 1500

    def test_includes_processes_that_ended_between_samples(self, stage: ShimStage) -> None:
        # When the process ends, its parent is still alive but idle.
        usage = stage.sampled(BUSY.format(0.4), lambda seen: seen.rows[-1].cpu_ms >= 400)
        assert [row.cpu_ms for row in usage.rows] == sorted(row.cpu_ms for row in usage.rows)

    def test_includes_orphans_reaped_by_shim(self, stage: ShimStage) -> None:
        left = f"(setsid sh -c '{BUSY.format(0.4)}') &"
        stage.sampled(left, lambda seen: seen.rows[-1].cpu_ms >= 400)
        assert stage.usage().rows[-1].cpu_ms >= 400

    def test_is_recorded_for_program_shorter_than_sample(self, stage: ShimStage) -> None:
        stage.every_s = 1000.0
        (row,) = stage.run(BUSY.format(0.2)).rows
        assert row.cpu_ms >= 200

    @pytest.mark.parametrize("pid", [500, 30_000])
    def test_counts_process_ending_during_read_once(
        self, pid: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Process ids wrap around, so a child's id may be lower than its parent's.
        parent = 30_500 - pid
        ticks = 100 * os.sysconf("SC_CLK_TCK")
        looks = {pid: 0}

        def fields(name: str) -> list[bytes]:
            has_ended = looks[pid] >= 2
            if int(name) == pid:
                looks[pid] += 1
                return [] if has_ended else _stat(parent, ticks, 0)
            return _stat(1, 0, ticks if has_ended else 0)

        monkeypatch.setattr(os, "listdir", lambda _: [str(pid), str(parent)])
        monkeypatch.setattr(shim_usage, "_fields", fields)
        assert [family(1).cpu_s for _ in range(3)] == [100.0] * 3


class TestProgramMemory:
    def test_peak_sums_all_processes(self, stage: ShimStage) -> None:
        hold = (
            f"{sys.executable} -S -c \"held = b'x' * 80_000_000; import time; time.sleep(600)\" &"
        )
        stage.sampled(
            f"{hold} {hold}",
            lambda seen: (seen.rows[-1].memory_peak_bytes or 0) >= 160_000_000,
        )

    def test_counts_only_descendants(self) -> None:
        with (
            subprocess.Popen(["sleep", "60"]) as other,
            subprocess.Popen(["sh", "-c", "sleep 60 & sleep 60 & wait"]) as parent,
        ):
            try:
                eventually(lambda: family(parent.pid).processes == 2)
                assert family(other.pid).processes == 0
                assert (family(parent.pid).resident_bytes or 0) > 0
            finally:
                subprocess.run(["pkill", "-P", str(parent.pid)], check=False)
                other.kill()
                parent.kill()

    def test_is_unknown_if_all_processes_are_ending(self) -> None:
        # A child that its parent does not wait for is a zombie.
        text = "import os, time\nif os.fork() == 0: os._exit(0)\ntime.sleep(600)"
        with subprocess.Popen([sys.executable, "-S", "-c", text]) as parent:
            try:
                eventually(lambda: family(parent.pid)[::2] == (1, None))
            finally:
                parent.kill()

    def test_ignores_ending_processes_among_running_ones(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        said = {"10": _stat(1, 0, 0), "11": _stat(1, 0, 0, pages=3)}
        monkeypatch.setattr(shim_usage, "_fields", said.get)
        monkeypatch.setattr(os, "listdir", lambda _: list(said))
        assert family(1).resident_bytes == 3 * os.sysconf("SC_PAGE_SIZE")
        del said["11"]
        assert family(1).resident_bytes is None

    def test_counts_many_processes(self) -> None:
        text = "i=0; while [ $i -lt 40 ]; do sleep 60 & i=$((i+1)); done; wait"
        with subprocess.Popen(["sh", "-c", text]) as parent:
            try:
                eventually(lambda: family(parent.pid).processes == 40)
            finally:
                subprocess.run(["pkill", "-P", str(parent.pid)], check=False)
                parent.kill()


class TestProgramCpus:
    @pytest.mark.parametrize(
        ("given", "cpus"),
        [("1", 1), ("3", 3), ("64", 4), ("0", 1), ("", 4), ("2(x3)", 4), (None, 4)],
    )
    def test_are_limited_by_slurm_allocation(
        self, given: str | None, cpus: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("SLURM_CPUS_ON_NODE", raising=False)
        if given is not None:
            monkeypatch.setenv("SLURM_CPUS_ON_NODE", given)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)))
        shim_usage.Usage(tmp_path, {"env": {}}).finish()
        (file,) = tmp_path.glob("usage.0.json")
        assert f'"cpus":{cpus},' in file.read_text()


class TestCpuMeter:
    def test_holds_value_after_brief_drop(self) -> None:
        meter = CpuMeter()
        assert [meter.reads(s) for s in (5.0, 3.0, 6.0)] == [5.0, 5.0, 6.0]

    def test_continues_after_lasting_drop(self) -> None:
        meter = CpuMeter()
        assert [meter.reads(s) for s in (5.0, 1.0, 2.0, 3.0)] == [5.0, 5.0, 6.0, 7.0]

    @given(st.lists(st.floats(0, 1e6), min_size=1))
    def test_never_decreases_or_overcounts(self, readings: list[float]) -> None:
        meter = CpuMeter()
        so_far = [meter.reads(one) for one in readings]
        assert so_far == sorted(so_far)
        grown = sum(max(0.0, later - one) for one, later in pairwise([0.0, *readings]))
        assert so_far[-1] <= grown * (1 + 1e-9)


class TestSampleRows:
    @given(
        st.lists(st.tuples(st.integers(0, 50), st.integers(0, 99), st.integers(0, 2**40))),
        st.integers(2, 12),
    )
    def test_cover_whole_lease_without_loss(
        self, steps: list[tuple[int, int, int]], most: int
    ) -> None:
        course = SampleCourse(most, 0.01)
        at = cpu = 0
        for took, used, memory in steps:
            at, cpu = at + took, cpu + used
            course.add(at, cpu, memory)
            course.add_gpus([GpuReading(used, memory, None)])
        assert len(course.rows) <= most
        said = [row.said() for row in course.rows]
        assert [row[0] for row in said] == sorted({row[0] for row in said})
        if steps:
            assert said[-1][:2] == [at, cpu]
            assert max(row[3] for row in said) == max(memory for _, _, memory in steps)
            assert max(row[5][0] for row in said) == max(memory for _, _, memory in steps)
            assert all(row[2] <= row[3] for row in said)
            mean = sum(row.busy[0][1] for row in course.rows) / len(steps)
            assert mean == pytest.approx(sum(used for _, used, _ in steps) / len(steps))

    def test_merge_samples_of_same_millisecond(self) -> None:
        course = SampleCourse(240, 10.0)
        for end_ms, cpu_ms in ((1000, 1), (10_000, 5), (10_000, 6)):
            course.add(end_ms, cpu_ms, 1)
        assert [row.said()[:2] for row in course.rows] == [[10_000, 6]]

    def test_interval_grows_with_lease(self) -> None:
        course = SampleCourse(240)
        for sample in range(1, 10_001):
            course.add(sample * 10_000, sample, 1)
        assert 120 <= len(course.rows) <= 240
        assert course.step_ms == 640_000

    def test_are_fewer_per_node_of_large_gang(self) -> None:
        assert [rows_of_each(ranks) for ranks in (1, 4, 8, 500)] == [240, 240, 120, 40]


class TestProgramGpus:
    def test_include_only_visible_gpus(self, stage: ShimStage, tmp_path: Path) -> None:
        tool = fake_tool(
            tmp_path / "bin", f'{ONE_GPU}; echo "1, GPU-b, 7, 20, 80000"; echo "2, GPU-c, 9, 1, 1"'
        )
        usage = stage.sampled("", _answered, path=f"{tool}:/usr/bin:/bin", gpus="GPU-b,0")
        assert (usage.gpus, usage.gpu_state, usage.gpu_mib) == (2, GpuState.OK, 80000)
        assert (usage.rows[0].busy, usage.rows[0].used_mib) == ((70, 550), (20, 1000))

    def test_missing_gpu_keeps_its_index(self) -> None:
        text = "0, GPU-a, 50, 1, 2\n2, GPU-c, 70, 3, 4\n"
        assert read_gpus(text, ["0", "1", "2"]) == [
            GpuReading(50, 1, 2), GpuReading(None, None, None), GpuReading(70, 3, 4),
        ]  # fmt: skip

    def test_are_absent_without_nvidia_smi(self, stage: ShimStage) -> None:
        usage = stage.sampled("", _twice, path="/nonexistent", gpus="0")
        assert (usage.gpus, usage.gpu_state) == (1, GpuState.ABSENT)
        assert all(row.busy == () for row in usage.rows)

    @pytest.mark.parametrize("gpus", [None, "", "-1", "NoDevFiles"])
    def test_are_not_queried_if_job_has_none(
        self, stage: ShimStage, tmp_path: Path, gpus: str | None
    ) -> None:
        tool = fake_tool(tmp_path / "bin", f"touch {tmp_path}/asked; {ONE_GPU}")
        usage = stage.sampled("", _twice, path=f"{tool}:/usr/bin:/bin", gpus=gpus)
        assert (usage.gpus, usage.gpu_state) == (0, GpuState.NONE)
        assert not (tmp_path / "asked").exists()

    @pytest.mark.parametrize(
        "script",
        [
            f"{ONE_GPU}; exit 1",
            "echo 'NVIDIA-SMI has failed'",
            "head -c 3000000 /dev/urandom",
            "yes 0, GPU-a, 55, 1000, 80000",
            'echo "0, GPU-a, nan, -5, 1e99"',
            'echo "0, GPU-a, [N/A], [N/A], [N/A]"',
            'echo "7, GPU-a, 55, 1000, 80000"',
            "exit 0",
        ],
    )
    def test_queries_stop_after_three_failures(
        self, stage: ShimStage, tmp_path: Path, script: str
    ) -> None:
        count = f'echo >> "{tmp_path}/calls"'
        tool = fake_tool(tmp_path / "bin", f"{count}; {script}")
        rows: list[int] = []

        def goes_on_without(seen: NodeUsage) -> bool:
            if seen.gpu_state is GpuState.FAILED:
                rows.append(len(seen.rows))
            return bool(rows) and len(seen.rows) > rows[0] + 1

        path = f"{tool}:/usr/bin:/bin"
        usage = stage.sampled("", goes_on_without, path=path, gpus="0")
        assert len((tmp_path / "calls").read_text().splitlines()) == 3
        assert all(row.busy == () for row in usage.rows)


class TestHangingNvidiaSmi:
    # A child of the tool also holds the tool's output open, and both ignore SIGTERM.
    HANGS = "trap '' TERM; echo $$ >> {0}; sleep 600 & echo $! >> {0}; wait; sleep 600"

    def test_delays_neither_log_nor_signals_nor_end(self, stage: ShimStage, tmp_path: Path) -> None:
        pids = tmp_path / "pids"
        tool = fake_tool(tmp_path / "bin", self.HANGS.format(pids))
        shim = stage.start(
            "trap 'echo saved; exit 0' USR1; while :; do sleep 0.02; done",
            path=f"{tool}:/usr/bin:/bin", gpus="0",
        )  # fmt: skip
        eventually(lambda: pids.exists() and len(pids.read_text().split()) == 2)
        (stage.folder / "stop").write_text('{"grace_s": 30}')
        (helper,) = {int(pid) for pid in _named_by(stage.folder)} - {shim.pid}
        # The tool hangs in the kernel, so even the helper process does not return.
        os.kill(helper, signal.SIGSTOP)
        try:
            shim.send_signal(signal.SIGTERM)
            shim.wait(PATIENCE_S)
            assert "saved" in (stage.folder / "out.log").read_text()
            assert not stage.exit()["left_running"]
        finally:
            os.kill(helper, signal.SIGCONT)
        # When the helper ends, it also ends the tool that hangs.
        eventually(lambda: not any(_lives(pid) for pid in pids.read_text().split()))

    def test_is_killed_and_marked_failed(self, stage: ShimStage, tmp_path: Path) -> None:
        pids = tmp_path / "pids"
        tool = fake_tool(tmp_path / "bin", self.HANGS.format(pids))
        shim = stage.start("sleep 600", path=f"{tool}:/usr/bin:/bin", gpus="0")
        try:
            eventually((stage.folder / "usage.0.json").exists)
            eventually(lambda: stage.usage().gpu_state is GpuState.FAILED)
            eventually(lambda: not any(_lives(pid) for pid in pids.read_text().split()))
        finally:
            shim.send_signal(signal.SIGQUIT)
            shim.wait()


class TestHelper:
    def test_ends_with_killed_shim(self, stage: ShimStage, tmp_path: Path) -> None:
        tool = fake_tool(tmp_path / "bin", ONE_GPU)
        shim = stage.start("sleep 600", path=f"{tool}:/usr/bin:/bin", gpus="0")
        eventually((stage.folder / "usage.0.json").exists)
        eventually(lambda: len(_named_by(stage.folder)) == 2)
        shim.kill()
        shim.wait()
        eventually(lambda: not _named_by(stage.folder))

    def test_closes_inherited_output(self, stage: ShimStage, tmp_path: Path) -> None:
        tool = fake_tool(tmp_path / "bin", ONE_GPU)
        shim = stage.start("sleep 600", path=f"{tool}:/usr/bin:/bin", gpus="0")
        try:
            eventually(lambda: len(_named_by(stage.folder)) == 2)
            assert shim.stdout is not None
            # The process that started the shim reads to the end of its output while shim and helper
            # still run.
            assert select.select([shim.stdout], [], [], PATIENCE_S)[0]
            assert shim.stdout.read() == b""
        finally:
            shim.send_signal(signal.SIGQUIT)
            shim.wait()

    def test_is_excluded_from_measurements(self, stage: ShimStage, tmp_path: Path) -> None:
        tool = fake_tool(tmp_path / "bin", f"{BUSY.format(0.5)}; {ONE_GPU}")
        usage = stage.sampled("", _answered, path=f"{tool}:/usr/bin:/bin", gpus="0")
        assert usage.rows[-1].cpu_ms < 200


class TestHostileJob:
    @pytest.mark.parametrize(
        "harm",
        [
            "mkdir leases/1/usage.0.json; touch leases/1/usage.0.json/x",
            "ln -s /etc/passwd leases/1/usage.0.json",
            "mkfifo leases/1/usage.0.json",
        ],
    )
    def test_affects_only_its_own_samples(self, stage: ShimStage, harm: str) -> None:
        # Before the last sample, the job replaces its samples by this file.
        stage.start(f"cd 7; {harm}; exit 3").wait(PATIENCE_S)
        assert stage.exit()["code"] == 3
        assert not [one for one in stage.folder.iterdir() if one.name.endswith(".new")]
        assert not (stage.folder / "usage.0.json").is_symlink()


def _answered(usage: NodeUsage) -> bool:
    return usage.gpu_state is GpuState.OK


def _twice(usage: NodeUsage) -> bool:
    return len(usage.rows) > 1


def _stat(parent: int, ticks: int, children_ticks: int, *, pages: int = 0) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the third field on."""
    numbers = {1: parent, 11: ticks, 13: children_ticks, 21: pages}
    return [str(numbers.get(place, 0)).encode() for place in range(50)]


def _lives(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _named_by(folder: Path) -> list[str]:
    """Return the living processes that were started with the folder as an argument."""
    named = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and _lives(entry.name):
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if str(folder).encode() in words:
                named.append(entry.name)
    return named
