"""A cluster whose jobs are submitted, listed, cancelled and extended by slurmrestd (v0.0.38).

The tools still do the work that its interface cannot do (docs/slurmrestd.md lists it). Experiments
with version 22.05.8 showed:

- `required_nodes` is disabled; the undocumented `nodelist` names a job's nodes. A server that does
  not know the key refuses the job.
- `argv` makes slurmrestd crash once the job is accepted, so arguments are in the script's text.
- `requeue: false` requests requeueing; `no_requeue` prevents requeueing.
- A signal goes to every process of a job, and ends its steps: a program would be killed before its
  checkpoint. So no signal is sent; shims check for requests twice a second.
"""

import os
import shlex
import time
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from scheduling.engine.executors.base import CALL_S, ExecutorError
from scheduling.engine.executors.slurm.commands import (
    UNLIMITED,
    Answer,
    NodeGroup,
    Slurm,
    SlurmJob,
    Submission,
    SubmissionRefusedError,
    base_environment,
    is_lease,
    is_passing,
)
from scheduling.engine.executors.slurm.options import SlurmOptions
from scheduling.engine.executors.slurm.restd_http import (
    RestdAnswer,
    RestdClient,
    RestdRefusedError,
)
from scheduling.selectors import stored_texts as texts

# Slurm's error numbers that concern jobs. Any other number means that the controller was not
# reached.
_OF_JOBS = range(2000, 3000)
# Slurm's errors: invalid job id; job is already completing; job has already finished.
_ENDED = frozenset((2017, 2021, 2084))


class RestdJob(msgspec.Struct, frozen=True, gc=False):
    """A job as slurmrestd lists it; times are seconds since 1970, 0 if unknown."""

    job_id: int
    user_id: int
    job_state: str
    start_time: int
    end_time: int
    partition: str | None = None
    name: str | None = None
    comment: str | None = None
    time_limit: int | None = None
    het_job_id: int | None = None
    het_job_offset: int | None = None

    def as_job(self) -> SlurmJob:
        """Return the job in the form that the executor uses."""
        limit = UNLIMITED if self.time_limit is None else self.time_limit
        started, ended = self.start_time or None, self.end_time or None
        job_id = self.het_job_id or self.job_id
        comment = self.comment or ""
        token = comment if is_lease(self.name or "", comment) else ""
        return SlurmJob(job_id, token, self.job_state, limit, started, ended)


class RestdJobs(RestdAnswer, frozen=True):
    jobs: tuple[RestdJob, ...]


class RestdSubmitted(RestdAnswer, frozen=True):
    job_id: int

    @property
    def is_good(self) -> bool:
        """Whether the answer has an id: an error with an id only explains why the job waits."""
        return self.job_id > 0


class RestdSubmitter(Slurm):
    """A cluster that accepts jobs through slurmrestd, and is queried through its tools."""

    def __init__(self, options: SlurmOptions, client: RestdClient) -> None:
        super().__init__(options)
        self.client = client

    def submit(self, submissions: Mapping[str, Callable[[], Submission]]) -> dict[str, Answer]:
        """Submit jobs like `Slurm.submit`; check the first job's user before the rest.

        A user that slurmrestd's host does not know becomes another user there. `queue` would never
        list its jobs, so they would be submitted again and again. If slurmrestd refuses a job for a
        reason that does not concern the job itself, the rest is not submitted and gets no answer.
        """
        rest = dict(submissions)
        answers: dict[str, Answer] = {}
        for token in submissions:
            answer = super().submit({token: rest.pop(token)})[token]
            answers[token] = answer
            if isinstance(answer, int):
                try:
                    self._check_user(answer)
                except ExecutorError as error:
                    return answers | {token: error}
                break
            if isinstance(answer, ExecutorError) and not _is_of_request(answer):
                return answers
        return answers | super().submit(rest)

    def _submit(self, submission: Submission) -> int:
        body = submission_body(self.options, submission)
        try:
            return self.client.ask(RestdSubmitted, "POST", "job/submit", body).job_id
        except RestdRefusedError as error:
            # Errors of slurmrestd's parser have another status, and do not concern the job.
            of_job = error.status == HTTPStatus.INTERNAL_SERVER_ERROR and any(
                code in _OF_JOBS for code in error.codes
            )
            if of_job and not is_passing(error.said):
                raise SubmissionRefusedError(error.said) from error
            raise

    def _check_user(self, job_id: int) -> None:
        job = self.client.ask(RestdJobs, "GET", f"job/{job_id}").jobs
        others = {one.user_id for one in job} - {os.geteuid()}
        if others:
            self.client.ask(RestdAnswer, "DELETE", f"job/{job_id}")
            raise ExecutorError(
                texts.SUBMITS_AS_OTHER.format(
                    where=self.client.where, other=others.pop(), user=os.geteuid()
                )
            )


class RestdSlurm(RestdSubmitter):
    """A cluster that is used through slurmrestd, and through its tools for the rest (`ask`)."""

    def jobs(self) -> list[tuple[SlurmJob, int]]:
        """Return jobs like `Slurm.jobs`. slurmrestd lists the jobs of all partitions."""
        listed = self.client.ask(RestdJobs, "GET", "jobs").jobs
        return [
            (job.as_job(), job.user_id)
            for job in listed
            if job.partition == self.options.partition and not job.het_job_offset
        ]

    def cancel(self, job_ids: Iterable[int], *, signal: str = "") -> None:
        """Cancel jobs; jobs that have ended already are ignored. With `signal` it does nothing."""
        if not signal:
            self._each(job_ids, lambda job_id: ("DELETE", f"job/{job_id}", None))

    def limit(self, minutes: Mapping[int, int]) -> None:
        """Set time limits of jobs in minutes, by job id; jobs that have ended are ignored."""
        self._each(
            minutes, lambda job_id: ("POST", f"job/{job_id}", {"time_limit": minutes[job_id]})
        )

    def _each(
        self,
        job_ids: Iterable[int],
        request: Callable[[int], tuple[str, str, dict[str, Any] | None]],
    ) -> None:
        """Send one request per job, within CALL_S in total; raise the first refusal at the end."""
        deadline = time.monotonic() + CALL_S
        refused: RestdRefusedError | None = None
        for job_id in sorted(set(job_ids)):
            try:
                self.client.ask(RestdAnswer, *request(job_id), deadline=deadline)
            except RestdRefusedError as error:
                if not error.codes & _ENDED:
                    refused = refused or error
        if refused is not None:
            raise refused


def connect(options: SlurmOptions) -> Slurm:
    """Return a pool's cluster, with the interface that its options select."""
    if options.restd is None:
        return Slurm(options)
    kind = RestdSubmitter if options.restd.only_submits else RestdSlurm
    return kind(options, RestdClient(options.restd))


def _is_of_request(error: ExecutorError) -> bool:
    """Return whether slurmrestd refuses only this request, and may accept another."""
    return isinstance(error, RestdRefusedError) and error.status == HTTPStatus.BAD_REQUEST


def submission_body(options: SlurmOptions, submission: Submission) -> dict[str, Any]:
    """Return the body for `job/submit`: a job, or one component per group of nodes."""
    components = [_component(options, submission, group) for group in submission.groups]
    # Quote the arguments for the shell, which reads only this line, so the script needs no file.
    script = f"#!/bin/sh\nexec {shlex.join(submission.argv)}\n"
    if len(components) == 1:
        return {"script": script, "job": components[0]}
    return {"script": script, "jobs": components}


def _component(options: SlurmOptions, submission: Submission, group: NodeGroup) -> dict[str, Any]:
    wanted: dict[str, Any] = {
        "partition": options.partition,
        "account": submission.account,
        "qos": options.qos,
        "reservation": options.reservation,
        "gres": group.gres,
        "cpus_per_task": group.cpus,
        "memory_per_node": group.memory_mib,
    }
    return {
        **{name: value for name, value in wanted.items() if value},
        "comment": submission.token,
        "name": submission.name,
        "current_working_directory": submission.folder,
        "standard_output": submission.output,
        "open_mode": "append",
        "no_requeue": True,
        "environment": base_environment(),
        "nodelist": ",".join(group.nodes),
        "nodes": [len(group.nodes), len(group.nodes)],
        "tasks_per_node": 1,
        "time_limit": submission.minutes,
    }
