"""Test a real slurmrestd: its jobs and nodes, and its failures.

test_slurm_restd_pool.py tests a pool on it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from scheduling.engine.executors.base import ExecutorError
from scheduling.engine.executors.node_source import EngineNodeState
from scheduling.engine.executors.slurm import restd_http
from scheduling.engine.executors.slurm.commands import (
    NodeGroup,
    Slurm,
    Submission,
    SubmissionRefusedError,
    is_over,
)
from scheduling.engine.executors.slurm.nodes import read_nodes
from scheduling.engine.executors.slurm.options import RestdOptions, SlurmOptions
from scheduling.engine.executors.slurm.restd import RestdSlurm, connect
from scheduling.engine.executors.slurm.restd_nodes import read_restd_nodes
from tests.slurm import as_made, kill_node
from tests.slurm_restd import NOBODY, RealRestd, own_restd
from tests.tools import eventually

# A comment with invalid UTF-8, and characters that JSON has to escape.
ODD = os.fsdecode(b'\xff "\\ \x01')


@pytest.fixture
def slurm(slurm_restd: RealRestd) -> Iterator[RestdSlurm]:
    """Yield the cluster through slurmrestd, and end its jobs afterwards."""
    made = connect(options_of(slurm_restd))
    assert isinstance(made, RestdSlurm)
    yield made
    slurm_restd.cluster.run("scancel", f"--partition={slurm_restd.cluster.partition}")
    eventually(lambda: not slurm_restd.cluster.run("squeue", "--noheader"))


def options_of(restd: RealRestd) -> SlurmOptions:
    cluster = restd.cluster
    own = {"conf": str(cluster.conf), "partition": cluster.partition}
    return msgspec.convert({**own, **restd.options}, SlurmOptions)


def submission(token: str, *groups: NodeGroup, run: str = "exec sleep 600") -> Submission:
    name = f"evenshare-{token.split('-')[1]}"
    argv = ("/bin/sh", "-c", run)
    wanted = groups or (NodeGroup(("node-2",), "gpu:a100:1", 0, 0),)
    return Submission(token, name, argv, "", "/", "/dev/null", wanted, 45)


class TestQueue:
    def test_matches_squeue(self, slurm: RestdSlurm, slurm_restd: RealRestd) -> None:
        tools = Slurm(slurm.options)
        whole = NodeGroup(("node-1",), "gpu:a100:4", 0, 0)
        uneven = (NodeGroup(("node-3",), "gpu:v100:3", 0, 0), NodeGroup(("node-4",), "", 1, 0))
        done = slurm.submit(
            as_made(
                submission("es-11-1", whole),
                submission("es-12-1", whole),  # The job has to wait.
                submission("es-13-1", *uneven),
                submission("es-14-1", run="true"),
                submission("es-15-1", run="false"),
                submission("es-16-1"),
            )
        )
        ids = {token: answer for token, answer in done.items() if isinstance(answer, int)}
        assert len(ids) == 6
        slurm.cancel([ids["es-16-1"]])
        wrap = ("--wrap=true", "--output=/dev/null")
        slurm_restd.cluster.run("sbatch", *wrap, f"--comment={ODD}", "--job-name=evenshare-17")
        slurm_restd.cluster.run("sbatch", *wrap, "--comment=es-18-1", "--job-name=mine")
        wanted = {
            "es-11-1": "RUNNING", "es-12-1": "PENDING", "es-13-1": "RUNNING",
            "es-14-1": "COMPLETED", "es-15-1": "FAILED", "es-16-1": "CANCELLED",
        }  # fmt: skip

        def settled() -> bool:
            queue = {token: job for token, job in tools.queue().items() if token in wanted}
            return {token: job.state for token, job in queue.items()} == wanted

        eventually(settled)
        queue = slurm.queue()
        by_squeue = tools.queue()
        assert set(queue) == set(by_squeue)
        # Slurm estimates the start of a waiting job, and updates the estimate from time to time.
        same = set(wanted) - {"es-12-1"}
        assert {token: queue[token] for token in same} == {
            token: by_squeue[token] for token in same
        }
        assert queue["es-12-1"].state == "PENDING"
        assert {token: queue[token].job_id for token in ids} == ids
        assert queue["es-11-1"].limit_minutes == 45

    def test_is_available_over_tcp(self, tmp_path: Path) -> None:
        with own_restd(tmp_path / "slurm", tcp=True) as restd:
            slurm = connect(options_of(restd))
            assert restd.url.startswith("http://127.0.0.1:")
            ((token, job_id),) = slurm.submit(as_made(submission("es-1-1"))).items()
            assert slurm.queue()[token].job_id == job_id


class TestNodes:
    def test_match_sinfo(self, slurm: RestdSlurm, slurm_restd: RealRestd) -> None:
        run = slurm_restd.cluster.run
        for node, state, reason in (
            ("node-1", "DRAIN", "evenshare: disk"),
            ("node-2", "DRAIN", 'a "hole", by whom?'),
            ("node-3", "DOWN", "away"),
            ("node-4", "FAIL", "soon"),
        ):
            run("scontrol", "update", f"NodeName={node}", f"State={state}", f"Reason={reason}")
        when = ("StartTime=now", "Duration=60", "Users=root", "Flags=MAINT,IGNORE_JOBS")
        run("scontrol", "create", "reservation", "ReservationName=works", *when, "Nodes=node-5")
        tools = Slurm(slurm.options)
        try:
            eventually(lambda: read_nodes(tools)[4].state is EngineNodeState.DRAINED)
            nodes = read_restd_nodes(slurm)
            assert nodes == read_nodes(tools)
            assert [node.state.name for node in nodes] == [
                "UP",
                "DRAINED",
                "DOWN",
                *["DRAINED"] * 2,
            ]
            assert [node.drained_here for node in nodes] == [True, *[False] * 4]
        finally:
            run("scontrol", "delete", "ReservationName=works")
            for each in slurm_restd.cluster.nodes[:4]:
                run("scontrol", "update", f"NodeName={each.name}", "State=RESUME")
        eventually(lambda: read_restd_nodes(slurm) == read_nodes(tools))

    def test_unresponsive_nodes_are_down(self, tmp_path: Path) -> None:
        with own_restd(tmp_path / "slurm", slurmd_timeout_s=4) as restd:
            slurm = connect(options_of(restd))
            assert isinstance(slurm, RestdSlurm)
            kill_node(restd.cluster, "node-5")
            eventually(lambda: read_restd_nodes(slurm)[4].state is EngineNodeState.DOWN)
            eventually(lambda: read_restd_nodes(slurm) == read_nodes(Slurm(slurm.options)))

    def test_unknown_partition_raises_error(self, slurm: RestdSlurm) -> None:
        options = msgspec.structs.replace(slurm.options, partition="nowhere")
        with pytest.raises(ExecutorError, match="the partition nowhere does not exist"):
            read_restd_nodes(RestdSlurm(options, slurm.client))


def failure(slurm: Slurm, token: str) -> str:
    """Return why a job is refused that may be accepted later."""
    (said,) = slurm.submit(as_made(submission(token))).values()
    assert isinstance(said, ExecutorError)
    return str(said)


class TestJob:
    def test_runs_on_requested_nodes(self, slurm: RestdSlurm) -> None:
        answers = slurm.submit(as_made(submission("es-21-1"), submission("es-22-1")))
        eventually(lambda: {slurm.queue()[token].state for token in answers} == {"RUNNING"})
        for job_id in answers.values():
            nodes = slurm.ask("squeue", "--noheader", f"--jobs={job_id}", "--format=%N")
            assert nodes.strip() == "node-2"  # the requested node, not the first free one

    def test_invalid_job_is_refused_with_message_of_slurm(self, slurm: RestdSlurm) -> None:
        nowhere = submission("es-23-1", NodeGroup(("node-99",), "gpu:a100:1", 0, 0))
        too_much = submission("es-24-1", NodeGroup(("node-1",), "gpu:a100:9", 0, 0))
        fine = submission("es-25-1")
        first, second, third = slurm.submit(as_made(nowhere, too_much, fine)).values()
        assert isinstance(first, SubmissionRefusedError)
        assert str(first) == "Invalid node name specified"
        assert str(second) == "Requested node configuration is not available"
        assert isinstance(third, int)

    def test_job_for_drained_node_is_accepted(
        self, slurm: RestdSlurm, slurm_restd: RealRestd
    ) -> None:
        update = ("scontrol", "update", "NodeName=node-2")
        slurm_restd.cluster.run(*update, "State=DRAIN", "Reason=test")
        try:
            (answer,) = slurm.submit(as_made(submission("es-26-1"))).values()
            assert isinstance(answer, int)
        finally:
            slurm_restd.cluster.run(*update, "State=RESUME")

    def test_can_be_extended_and_cancelled_even_after_its_end(self, slurm: RestdSlurm) -> None:
        (job_id,) = slurm.submit(as_made(submission("es-27-1"))).values()
        assert isinstance(job_id, int)
        eventually(lambda: slurm.queue()["es-27-1"].state == "RUNNING")
        slurm.limit({job_id: 90, 999_999: 90})
        assert slurm.queue()["es-27-1"].limit_minutes == 90
        slurm.cancel([job_id, 999_999])
        eventually(lambda: is_over(slurm.queue()["es-27-1"].state))
        slurm.limit({job_id: 120})
        slurm.cancel([job_id])

    def test_job_submitted_as_other_user_is_cancelled(
        self, slurm: RestdSlurm, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(restd_http, "_own_name", lambda: "root")
        with monkeypatch.context() as other:
            other.setattr(os, "geteuid", lambda: 4711)
            (said,) = slurm.submit(as_made(submission("es-28-1"), submission("es-29-1"))).values()
        assert isinstance(said, ExecutorError)
        assert "submits jobs as the user 0, the portal is 4711" in str(said)
        eventually(lambda: is_over(slurm.queue()["es-28-1"].state))
        assert "es-29-1" not in slurm.queue()


class TestSlurmrestd:
    def test_outage_or_hang_raises_error_and_loses_nothing(
        self, slurm: RestdSlurm, slurm_restd: RealRestd, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (job_id,) = slurm.submit(as_made(submission("es-31-1"))).values()
        slurm_restd.stop()
        with pytest.raises(ExecutorError, match="refused"):
            slurm.queue()
        assert "refused" in failure(slurm, "es-32-1")
        slurm_restd.start()
        monkeypatch.setattr(restd_http, "CALL_S", 0.5)
        slurm_restd.freeze()
        with pytest.raises(ExecutorError, match=r"did not answer within 0\.5 s"):
            slurm.queue()
        slurm_restd.thaw()
        monkeypatch.undo()
        assert slurm.queue()["es-31-1"].job_id == job_id

    def test_missing_controller_raises_error(
        self, slurm: RestdSlurm, slurm_restd: RealRestd, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(restd_http, "CALL_S", 0.5)
        slurm_restd.cluster.kill_controller()
        try:
            with pytest.raises(ExecutorError, match="slurmrestd at unix:"):
                slurm.queue()
            assert "slurmrestd at unix:" in failure(slurm, "es-33-1")
        finally:
            slurm_restd.cluster.start_controller()
        # Until the nodes register again, the controller does not know their state.
        eventually(lambda: {*slurm_restd.cluster.node_states().values()} <= {"idle", "mixed"})

    def test_uses_newest_token(self, slurm: RestdSlurm, slurm_restd: RealRestd) -> None:
        good = slurm_restd.token_file.read_text()
        try:
            head, _, signature = good.strip().rpartition(".")
            slurm_restd.token_file.write_text(f"{head}.{signature[::-1]}")
            with pytest.raises(ExecutorError, match="slurmrestd at unix:"):
                slurm.queue()
            slurm_restd.write_token("username=daemon", "lifespan=600")
            with pytest.raises(ExecutorError, match="is for the user 'daemon'"):
                slurm.queue()
        finally:
            slurm_restd.token_file.write_text(good)
        slurm.queue()

    def test_server_of_same_user_needs_no_token(self, slurm_restd: RealRestd) -> None:
        """It runs as the user `nobody`, because slurmrestd refuses to run as root or SlurmUser."""
        slurm_restd.stop()
        slurm_restd.authentication = "rest_auth/local"
        plain = msgspec.structs.replace(
            options_of(slurm_restd), restd=RestdOptions(url=slurm_restd.url)
        )
        slurm = connect(plain)
        try:
            slurm_restd.start()
            os.seteuid(NOBODY)
            try:
                (job_id,) = slurm.submit(as_made(submission("es-40-1"))).values()
                assert isinstance(job_id, int)
                assert slurm.queue()["es-40-1"].job_id == job_id
                slurm.cancel([job_id])
                eventually(lambda: is_over(slurm.queue()["es-40-1"].state))
            finally:
                os.seteuid(0)
        finally:
            slurm_restd.stop()
            slurm_restd.authentication = "rest_auth/jwt"
            slurm_restd.start()
        shown = slurm_restd.cluster.run("squeue", "--states=all", f"--jobs={job_id}", "--format=%U")
        assert str(NOBODY) in shown

    def test_server_of_other_user_is_not_called_without_token(self, slurm_restd: RealRestd) -> None:
        """With rest_auth/local, slurmrestd would run root's requests as its own user, `nobody`."""
        slurm_restd.stop()
        slurm_restd.authentication = "rest_auth/local"
        try:
            slurm_restd.start()
            plain = msgspec.structs.replace(
                options_of(slurm_restd), restd=RestdOptions(url=slurm_restd.url)
            )
            assert "it runs as the user 65534" in failure(connect(plain), "es-41-1")
            assert "es-41-1" not in slurm_restd.cluster.run("squeue", "--format=%k")
        finally:
            slurm_restd.stop()
            slurm_restd.authentication = "rest_auth/jwt"
            slurm_restd.start()

    def test_signals_every_process_of_job(self, slurm: RestdSlurm, tmp_path: Path) -> None:
        """If this test fails, slurmrestd has improved: `RestdSlurm.cancel` could send signals."""
        said, child = tmp_path / "said", tmp_path / "child"
        child.write_text(
            f"trap 'echo child >> {said}' TERM; echo up >> {said}; while :; do sleep 0.1; done"
        )
        run = f"trap : TERM; /bin/sh {child} & while :; do sleep 0.1; done"
        (job_id,) = slurm.submit(as_made(submission("es-42-1", run=run))).values()
        eventually(lambda: said.exists() and "up" in said.read_text())
        slurm.client.ask(restd_http.RestdAnswer, "DELETE", f"job/{job_id}?signal=TERM")
        eventually(lambda: "child" in said.read_text())
