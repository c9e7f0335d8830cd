"""Test gangs of several real processes, which resume from the same step after any of them dies."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evenshare.runtime.sets import complete_sets
from tests.tools import PATIENCE_S, eventually

from .gang import COUNT, FOREVER, Gang, codes_of, preempt, signal_all
from .job import SOURCE

MakeGang = Callable[..., Gang]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeGang]:
    made: list[Gang] = []

    def build(**fields: float) -> Gang:
        made.append(Gang(tmp_path, **fields))  # type: ignore[arg-type]  # size and grace
        return made[-1]

    yield build
    for gang in made:
        gang.close()


def steps_of(gang: Gang) -> set[int]:
    """Return the steps of the files in the newest complete set."""
    newest = complete_sets(gang.folder / "checkpoints")[0]
    bodies = [(gang.folder / "checkpoints" / name).read_bytes() for name in newest.files]
    return {int(body.rpartition(b'"step":')[2].split(b",")[0]) for body in bodies}


class TestPreemptedGang:
    def test_ends_and_resumes_at_same_step(self, make: MakeGang) -> None:
        gang = make(size=3)
        # The ranks count at different speeds, so the signal arrives at different steps.
        first = gang.start(FOREVER, variables={1: {"PAUSE": "0.006"}})
        gang.reaches(10)
        assert preempt(first) == [99, 99, 99], gang.job.text
        [step] = steps_of(gang)

        second = gang.start("5")
        assert gang.begun_at() == [step] * 3
        assert [process.wait(PATIENCE_S) for process in second] == [0, 0, 0]
        assert gang.job.text.count(f"done {step + 5}\n") == 3

    def test_signal_to_one_rank_stops_all(self, make: MakeGang) -> None:
        gang = make()
        for signalled in (0, 1):
            before = gang.job.progress.get("step", 0)
            ranks = gang.start(FOREVER)
            gang.reaches(before + 3)
            ranks[signalled].send_signal(signal.SIGUSR1)
            assert [process.wait(PATIENCE_S) for process in ranks] == [99, 99]

    def test_before_end_of_first_step_exits_with_99(self, make: MakeGang) -> None:
        gang = make(grace_s=1.0)
        ranks = gang.start(
            "0",
            program="import time; from evenshare import lease; lease.resume()\n"
            "print('rank 0 from 0', flush=True)\nwhile True: time.sleep(1)",
        )
        gang.begun_at()
        assert preempt(ranks) == [99, 99]

    def test_with_step_longer_than_grace_keeps_previous_step(self, make: MakeGang) -> None:
        gang = make()
        program = (
            "import sys, time; from evenshare import lease\n"
            "state = lease.resume({'step': 0})\n"
            "print('rank', 0, 'from', state['step'], flush=True)\n"
            "lease.store({'step': state['step'] + 1}); print('stored', flush=True)\n"
            "while sys.argv[1:]: time.sleep(1)"
        )
        ranks = gang.start("long", program=program)
        eventually(lambda: gang.job.text.count("stored") == 2)
        signal_all(ranks)
        eventually(gang.knows_complete_set)
        gang.end_grace()
        assert codes_of(ranks) == [99, 99]
        assert "without its last step" in gang.job.text
        gang.start(program=program)
        assert gang.begun_at() == [1, 1]

    def test_with_stuck_rank_keeps_previous_checkpoint_set(self, make: MakeGang) -> None:
        gang = make()
        assert preempt_at(gang, 3) == [99, 99]
        [step] = steps_of(gang)
        gang.job.grace_s = 2.0
        ranks = gang.start(FOREVER, variables={1: {"PAUSE": "1000"}})
        gang.reaches(step + 5)
        assert preempt(ranks) == [74, 74]
        gang.start("1")
        assert gang.begun_at() == [step, step]

    def test_at_last_step_finishes_normally(self, make: MakeGang) -> None:
        """The signal comes after one rank has ended, and the other must not wait for that rank."""
        gang = make()
        ranks = gang.start("60", variables={1: {"PAUSE": "0.05"}})
        assert ranks[0].wait(PATIENCE_S) == 0
        assert preempt(ranks) == [0, 0], gang.job.text

    def test_reports_progress_only_from_rank_0(self, make: MakeGang) -> None:
        gang = make()
        ranks = gang.start("20", variables={0: {"PAUSE": "0"}, 1: {"PAUSE": "0.1"}})
        assert [process.wait(PATIENCE_S) for process in ranks] == [0, 0]
        assert gang.job.progress["metrics"] == {"rank": 0}
        assert not [path.name for path in gang.folder.iterdir() if path.name.startswith(".")]


def preempt_at(gang: Gang, step: int) -> list[int]:
    """Run a lease until rank 0 has made `step` more steps, then end the lease."""
    before = gang.job.progress.get("step", 0)
    ranks = gang.start(FOREVER)
    gang.reaches(before + step)
    return preempt(ranks)


class TestKilledRank:
    """A rank dies at each moment of the protocol; the next lease's ranks start from one step."""

    @pytest.mark.parametrize("rank", [0, 1])
    @pytest.mark.parametrize(
        "moment", ["position", "half written", "not renamed", "renamed", "written", "complete"]
    )
    def test_at_end_of_lease_leaves_consistent_set(
        self, moment: str, rank: int, make: MakeGang
    ) -> None:
        gang = make()
        assert preempt_at(gang, 3) == [99, 99]
        [kept] = steps_of(gang)

        gang.job.grace_s = PATIENCE_S
        ranks = gang.start(FOREVER, variables={rank: {"DIE": moment}})
        gang.reaches(kept + 3)
        signal_all(ranks)
        assert ranks[rank].wait(PATIENCE_S) == -signal.SIGKILL
        gang.end_grace()
        assert ranks[1 - rank].wait(PATIENCE_S) in (99, 74)

        after = gang.start("2")
        begun = gang.begun_at()
        assert len(set(begun)) == 1
        assert begun[0] >= kept
        if moment == "complete":
            assert begun[0] > kept
        if moment in ("position", "half written", "not renamed"):
            assert begun[0] == kept
        assert [process.wait(PATIENCE_S) for process in after] == [0, 0]

    @pytest.mark.parametrize(("moment", "rank"), [("whole", 1), ("whole", 0), ("agreed", 0)])
    def test_at_start_of_lease_loses_nothing(self, moment: str, rank: int, make: MakeGang) -> None:
        gang = make()
        assert preempt_at(gang, 3) == [99, 99]
        [kept] = steps_of(gang)
        gang.job.grace_s = 1.5
        ranks = gang.start(FOREVER, variables={rank: {"DIE": moment}})
        assert ranks[rank].wait(PATIENCE_S) == -signal.SIGKILL
        preempt(ranks)
        # The set is incomplete if only the other rank wrote its part.
        assert steps_of(gang) == {kept}

    def test_without_signal_leaves_last_written_set(self, make: MakeGang) -> None:
        """Rank 0 chooses a step every second, and both ranks store a checkpoint at that step."""
        gang = make()
        often = {"EVERY": "0.1"}
        ranks = gang.start(FOREVER, variables={0: often})
        path = gang.folder / "checkpoints"
        eventually(lambda: path.exists() and complete_sets(path))
        for process in ranks:
            process.kill()
            process.wait()
        [step] = steps_of(gang)
        assert step > 0
        gang.start("1")
        assert gang.begun_at() == [step, step]


class TestStaleRank:
    def test_completes_no_set_after_waking_up(self, make: MakeGang) -> None:
        """The rank of an ended lease was paused before it wrote its part of a set."""
        gang = make()
        assert preempt_at(gang, 3) == [99, 99]
        gang.job.grace_s = 1.5
        ranks = gang.start(FOREVER)
        gang.reaches(1)
        ranks[1].send_signal(signal.SIGSTOP)
        ranks[0].send_signal(signal.SIGUSR1)
        assert ranks[0].wait(PATIENCE_S) in (99, 74)

        later = gang.start(FOREVER)
        [begun, _] = gang.begun_at()
        files = set(gang.files())
        for number in (signal.SIGUSR1, signal.SIGCONT):
            ranks[1].send_signal(number)
        assert ranks[1].wait(PATIENCE_S) == 97
        assert set(gang.files()) == files
        gang.reaches(begun + 1)
        gang.job.grace_s = 20.0
        preempt(later)
        assert len(steps_of(gang)) == 1

    def test_does_not_start(self, make: MakeGang) -> None:
        gang = make()
        gang.job.grant()
        gang.job.grant()
        stale = {"EVENSHARE_LEASE": "1"}
        assert gang.rank(1, 2, ["1"], variables=stale).wait(PATIENCE_S) == 97


class TestCheckpointSet:
    def test_with_truncated_part_is_skipped_by_all_ranks(self, make: MakeGang) -> None:
        gang = make()
        assert preempt_at(gang, 3) == [99, 99]
        path = gang.folder / "checkpoints"
        newest, before = complete_sets(path)[:2]
        torn = path / newest.file(1)
        torn.write_bytes(torn.read_bytes()[:-1])
        body = (path / before.file(0)).read_bytes()
        gang.start("1")
        begun = gang.begun_at()
        assert begun[0] == begun[1]
        assert b'"step":%d,' % begun[0] in body

    def test_of_more_ranks_than_now_is_rejected(self, make: MakeGang) -> None:
        gang = make(size=3)
        assert preempt_at(gang, 3) == [99, 99, 99]
        ranks = gang.start("1", size=2)
        assert [process.wait(PATIENCE_S) for process in ranks] == [1, 1]
        assert "the newest checkpoint is of 3 ranks, and 2 run now" in gang.job.text

    @pytest.mark.parametrize(("then", "now"), [(3, 2), (2, 3), (2, 1), (1, 2)])
    def test_is_readable_as_whole_by_other_number_of_ranks(
        self, then: int, now: int, make: MakeGang
    ) -> None:
        gang = make(size=then)
        assert preempt_at(gang, 3) == [99] * then
        program = (
            "from evenshare import lease\n"
            "states = lease.resume_all()\n"
            "print(lease.rank(), 'has', [s['rank'] for s in states], flush=True)\n"
            "assert len({s['step'] for s in states}) == 1\n"
            "lease.store({'step': states[0]['step'], 'rank': lease.rank()})\n"
            "lease.flush()"
        )
        ranks = gang.start(program=program, size=now)
        assert [process.wait(PATIENCE_S) for process in ranks] == [0] * now, gang.job.text
        assert gang.job.text.count(f"has {list(range(then))}") == now
        newest = complete_sets(gang.folder / "checkpoints")[0]
        assert (newest.lease, newest.size) == (2, now)


class TestRestartedProgram:
    def test_ranks_rejoin_within_same_lease(self, make: MakeGang) -> None:
        """Each rank runs two programs in sequence: the first prepares, the second trains."""
        gang = make()
        first = gang.start("3")
        assert [process.wait(PATIENCE_S) for process in first] == [0, 0]
        again = [gang.rank(rank, 2, [FOREVER]) for rank in (0, 1)]
        eventually(lambda: gang.job.text.count("from 0") == 4)
        assert preempt(again) == [99, 99]
        assert len(steps_of(gang)) == 1


class TestSingleRankState:
    def test_does_not_wait_for_other_ranks(self, make: MakeGang) -> None:
        gang = make()
        gang.job.grant()
        program = COUNT.replace("lease.setup(", "lease.setup(alone=True, ")
        program = program.replace("rank, pause = lease.rank()", "rank, pause = 0")
        assert gang.rank(1, 4, ["3"], program).wait(PATIENCE_S) == 0


class TestOutsidePortal:
    def run(self, source: str, folder: Path) -> subprocess.CompletedProcess[str]:
        world = {"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "1", "SLURM_JOB_ID": "7"}
        return subprocess.run(
            [sys.executable, "-c", source],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE), **world},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )

    def test_ranks_do_not_wait_for_each_other(self, tmp_path: Path) -> None:
        done = self.run(
            "from evenshare import lease\n"
            "assert lease.resume({'step': 4}) == {'step': 4} and lease.resume_all() == []\n"
            "lease.store({'step': 5}); lease.flush()\n"
            "print(lease.rank(), lease.world_size(), lease.inside(), lease.ending())",
            tmp_path,
        )
        assert (done.stdout, done.stderr) == ("1 2 False False\n", "")
        assert list(tmp_path.iterdir()) == []

    def test_ranks_cannot_share_folder(self, tmp_path: Path) -> None:
        done = self.run("from evenshare import lease; lease.setup(directory='kept')", tmp_path)
        assert "keeps the state of one process" in done.stderr


class TestInvalidRank:
    @pytest.mark.parametrize(
        ("variables", "text"),
        [
            ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK must be below WORLD_SIZE (2), not 2"),
            ({"RANK": "-1", "WORLD_SIZE": "2"}, "RANK must be a whole number from 0, not '-1'"),
            ({"RANK": "0", "WORLD_SIZE": "two"}, "WORLD_SIZE must be a whole number from 1"),
        ],
    )
    def test_error_names_variable(
        self, variables: dict[str, str], text: str, make: MakeGang
    ) -> None:
        gang = make()
        gang.job.grant()
        assert gang.rank(0, 2, ["1"], variables=variables).wait(PATIENCE_S) == 1
        assert f"ContractError: {text}" in gang.job.text
