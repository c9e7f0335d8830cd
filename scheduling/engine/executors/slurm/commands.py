"""Slurm's command line tools: bounded, without a shell, in a clean environment.

Every cluster has them. A pool can use slurmrestd for some of their work (`restd`).
"""

import contextlib
import os
import re
import secrets
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass

from scheduling.engine.executors.base import CALL_S, ExecutorError
from scheduling.engine.executors.slurm.options import SlurmOptions
from scheduling.selectors import stored_texts as texts

# More concurrent submissions do not make the controller accept jobs any faster.
SUBMITTERS = 4
# The maximum number of job ids in a command's arguments.
IDS_AT_ONCE = 500
UNLIMITED = -1

# Errors that do not concern the job itself, which may be accepted later.
_PASSING = re.compile(
    r"contact|timed? ?out|timeout|transmitted|temporarily|authentication|credential|connection"
    r"|communication|resource limit|slurm_persist|socket|try again|nodes are busy|standby|disabled"
    r"|(partition|reservation) not (available|usable)|I/O error writing",
    re.IGNORECASE,
)
_SEPARATOR = "\x1f"
_COLUMNS = ("%i", "%T", "%l", "%S", "%e", "%U", "%j", "%k")
# Marks messages of sbatch; messages of the program that runs it as another user have no mark.
_SAID_BY_SBATCH = re.compile(r"^sbatch: ", re.MULTILINE)


class SubmissionRefusedError(Exception):
    """Slurm refuses this job for good."""


class SlurmSilentError(ExecutorError):
    """Slurm did not answer in time; further calls now would time out too."""


# A job's id, or the error of its submission.
Answer = int | Exception


@dataclass(frozen=True)
class NodeGroup:
    """Nodes on which a job has equal shares. `gres` is empty if slots are not GPUs."""

    nodes: tuple[str, ...]
    gres: str
    cpus: int
    memory_mib: int


@dataclass(frozen=True)
class Submission:
    """A job to submit: `script` runs `argv` on its first node, in `folder`.

    Its output goes to the file `output`. `minutes` is its time limit. `account` is the Slurm
    account that is charged; if empty, the default account of the portal's user. `user` is the Unix
    user of the job; if empty, the portal's user.
    """

    token: str
    name: str
    argv: tuple[str, ...]
    script: str
    folder: str
    output: str
    groups: tuple[NodeGroup, ...]
    minutes: int
    account: str = ""
    user: str = ""


@dataclass(frozen=True)
class SlurmJob:
    """A job as squeue reports it, by the id of its first component.

    Times are seconds since 1970. `ended` of a running job is the end of its time limit. `token` is
    empty if the job is not a lease.
    """

    job_id: int
    token: str
    state: str
    limit_minutes: int = UNLIMITED
    started: int | None = None
    ended: int | None = None


class Slurm:
    """A cluster, queried through its tools.

    Every call raises ExecutorError if the cluster does not answer within CALL_S or refuses.
    """

    def __init__(self, options: SlurmOptions) -> None:
        self.options = options

    def submit(self, submissions: Mapping[str, Callable[[], Submission]]) -> dict[str, Answer]:
        """Prepare and submit jobs; return each job's id, or the error of its submission, by token.

        Each job is prepared while others are submitted: on a network file system the preparation
        takes longer than the submission. If a submission times out, no further jobs of the same
        user are submitted, because they would time out too.
        """
        silent: set[str] = set()

        def one(make: Callable[[], Submission]) -> Answer:
            try:
                submission = make()
                if submission.user in silent:
                    return SlurmSilentError(
                        "sbatch was not called: it did not answer for other jobs"
                    )
                try:
                    return self._submit(submission)
                except SlurmSilentError:
                    silent.add(submission.user)
                    raise
            except (SubmissionRefusedError, ExecutorError, OSError) as error:
                return error

        with ThreadPoolExecutor(SUBMITTERS) as pool:
            # Log lines of the threads get the pool and round from this context.
            asked = {
                token: pool.submit(copy_context().run, one, make)
                for token, make in submissions.items()
            }
        return {token: future.result() for token, future in asked.items()}

    def _submit(self, submission: Submission) -> int:
        arguments = submit_arguments(self.options, submission)
        if submission.user:
            done = self.run_as(submission.user, "sbatch", *arguments)
        else:
            done = self._run("sbatch", *arguments)
        said = done.stdout.strip().partition(";")[0]
        if done.returncode == 0 and said.isdecimal():
            return int(said)
        why = last_line(done.stderr) or f"answered {done.stdout[:100]!r}"
        if submission.user and not _SAID_BY_SBATCH.search(done.stderr):
            raise SubmissionRefusedError(texts.NOT_AS_USER.format(user=submission.user, error=why))
        refuses = submission.user or "job submission failed" in done.stderr
        if refuses and not is_passing(why):
            raise SubmissionRefusedError(why)
        raise ExecutorError(f"sbatch: {why}")

    def jobs(self) -> list[tuple[SlurmJob, int]]:
        """Return the partition's jobs in squeue, including ended ones, with their users' ids."""
        where = ("--noheader", "--states=all", "--partition", self.options.partition)
        return parse_jobs(self.table("squeue", _COLUMNS, *where))

    def queue(self, is_ours: Callable[[str, int], bool] | None = None) -> dict[str, SlurmJob]:
        """Return the jobs of leases by token (see `lease_jobs`); by default those of this user."""
        own = os.geteuid()
        return lease_jobs(self.jobs(), is_ours or (lambda _, uid: uid == own))

    def cancel(self, job_ids: Iterable[int], *, signal: str = "") -> None:
        """Cancel jobs; with `signal`, only send it to the process of their batch script.

        No error is raised for a job that has ended already.
        """
        how = ["--batch", "--signal", signal] if signal else []
        for ids in _batches(job_ids):
            self._run("scancel", "--quiet", *how, *ids)

    def limit(self, minutes: Mapping[int, int]) -> None:
        """Set time limits of jobs in minutes, by job id; jobs that have ended are ignored."""
        by_limit: dict[int, list[int]] = {}
        for job_id, limit in minutes.items():
            by_limit.setdefault(limit, []).append(job_id)
        for limit, job_ids in by_limit.items():
            for ids in _batches(job_ids):
                self._run("scontrol", "update", f"JobId={','.join(ids)}", f"TimeLimit={limit}")

    def ask(self, tool: str, *arguments: str) -> str:
        """Return a tool's output; times are seconds since 1970.

        Raises:
            ExecutorError: the tool fails, or does not answer in time.
        """
        done = self._run(tool, *arguments)
        if done.returncode != 0:
            # scontrol prints its errors to standard output.
            why = last_line(done.stderr) or last_line(done.stdout) or f"exit {done.returncode}"
            raise ExecutorError(f"{tool}: {why.removeprefix(f'{tool}: ')}")
        return done.stdout

    def table(self, tool: str, columns: Sequence[str], *arguments: str) -> list[list[str]]:
        """Return a tool's output as rows of these columns.

        A job's owner sets its name and comment, which may contain lines that look like rows.
        Therefore each row starts with a random mark.
        """
        mark = secrets.token_hex(8)
        said = self.ask(tool, *arguments, "--format", _SEPARATOR.join((mark, *columns)))
        return parse_table(said, mark, len(columns))

    def run_as(self, user: str, tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a tool as another Unix user, by `submit_as`.

        Raises:
            SubmissionRefusedError: the program of `submit_as` is not installed.
            SlurmSilentError: the tool does not answer in time.
        """
        command = [*self.options.prefix(user), tool, *arguments]
        try:
            return _run_bounded(command, self._environment(tool))
        except FileNotFoundError as error:
            why = texts.NO_PROGRAM.format(program=command[0])
            raise SubmissionRefusedError(texts.NOT_AS_USER.format(user=user, error=why)) from error
        except subprocess.TimeoutExpired as error:
            text = texts.SILENT_AS_USER.format(tool=tool, user=user, seconds=f"{CALL_S:g}")
            raise SlurmSilentError(text) from error

    def _environment(self, tool: str) -> dict[str, str]:
        return {
            **base_environment(),
            # Show times in tables as seconds since 1970. sbatch would pass it on to the job.
            **({"SLURM_TIME_FORMAT": "%s"} if tool != "sbatch" else {}),
            **({"SLURM_CONF": self.options.conf} if self.options.conf else {}),
        }

    def _run(self, tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                [tool, *arguments],
                env=self._environment(tool),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=CALL_S,
                check=False,
            )
        except FileNotFoundError as error:
            raise ExecutorError(texts.NO_TOOL.format(tool=tool)) from error
        except subprocess.TimeoutExpired as error:
            text = texts.TOOL_SILENT.format(tool=tool, seconds=f"{CALL_S:g}")
            raise SlurmSilentError(text) from error


def _run_bounded(
    command: Sequence[str], environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run like `subprocess.run`, but never wait for a program that we cannot kill, such as sudo.

    If this program still submits a job, the job is recognised by its token.
    """
    process = subprocess.Popen(
        command,
        env=environment,
        # Every user may enter this directory.
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    try:
        out, err = process.communicate(timeout=CALL_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(PermissionError):
            process.kill()
            process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def base_environment() -> dict[str, str]:
    """Return the environment of tools and batch scripts, without the portal's variables."""
    path = f"{os.environ.get('PATH') or os.defpath}:/usr/sbin:/usr/local/sbin"
    return {"PATH": path, "LANG": "C.UTF-8"}


def is_passing(why: str) -> bool:
    """Return whether Slurm refuses a job for a reason that does not concern the job itself."""
    return _PASSING.search(why) is not None


def submit_arguments(options: SlurmOptions, submission: Submission) -> list[str]:
    """Return sbatch's arguments: one component of a job per group of nodes with equal GPUs."""
    common = [
        "--parsable",
        # Pass on this environment, which has no variables of the portal (`_run`). With NONE, Slurm
        # would run a login shell on the node, which takes a second.
        "--export=ALL",
        "--no-requeue",
        f"--comment={submission.token}",
        f"--job-name={submission.name}",
        f"--chdir={submission.folder}",
        f"--output={submission.output}",
        "--open-mode=append",
    ]
    arguments: list[str] = []
    for group in submission.groups:
        wanted = {
            "--partition": options.partition,
            "--account": submission.account,
            "--qos": options.qos,
            "--reservation": options.reservation,
            "--nodelist": ",".join(group.nodes),
            "--nodes": str(len(group.nodes)),
            "--ntasks-per-node": "1",
            "--time": str(submission.minutes),
            "--gres": group.gres,
            "--cpus-per-task": str(group.cpus or ""),
            "--mem": f"{group.memory_mib}M" if group.memory_mib else "",
        }
        # Repeat these options, because a component inherits none from the previous one.
        arguments += [":"] if arguments else common
        arguments += [f"{option}={value}" for option, value in wanted.items() if value]
    return [*arguments, submission.script, *submission.argv]


def parse_table(text: str, mark: str, columns: int) -> list[list[str]]:
    """Return the rows of a table, which begin with `mark`; other lines are skipped."""
    rows = (line.split(_SEPARATOR) for line in text.split("\n"))
    return [cells for first, *cells in rows if first == mark and len(cells) == columns]


def parse_jobs(rows: Iterable[Sequence[str]]) -> list[tuple[SlurmJob, int]]:
    """Return squeue's jobs with their users' ids; a heterogeneous job counts as one."""
    jobs = []
    for job_id, state, limit, started, ended, uid, name, comment in rows:
        leader, _, component = job_id.partition("+")
        if leader.isdecimal() and uid.isdecimal() and component in ("", "0"):
            token = comment if is_lease(name, comment) else ""
            instants = (parse_instant(started), parse_instant(ended))
            job = SlurmJob(int(leader), token, state, parse_minutes(limit), *instants)
            jobs.append((job, int(uid)))
    return jobs


def lease_jobs(
    jobs: Iterable[tuple[SlurmJob, int]], is_ours: Callable[[str, int], bool]
) -> dict[str, SlurmJob]:
    """Return the jobs that have the token of a lease, by token.

    `is_ours` returns whether a token's job may belong to a user id, since any user can copy a
    token. A submission is repeated if its answer was lost, so several jobs can have the same token.
    Then return the job that runs or may still run, because only one of them could claim the lease.
    """
    matches: dict[str, SlurmJob] = {}
    for job, uid in jobs:
        if job.token and is_ours(job.token, uid):
            keep_open(matches, job)
    return matches


def keep_open(jobs: dict[str, SlurmJob], job: SlurmJob) -> None:
    """Add a job by its token; if several jobs have this token, prefer one that has not ended."""
    known = jobs.get(job.token)
    if known is None or _rank(job.state) > _rank(known.state):
        jobs[job.token] = job


def _rank(state: str) -> int:
    """Return a number that is higher the more likely a job in this state has a running process."""
    return 0 if is_over(state) else 1 if state == "PENDING" else 2


def job_name(token: str) -> str:
    """Return the name of a lease's Slurm job, which contains the portal's job id."""
    return f"evenshare-{token.split('-')[1]}"


def is_lease(name: str, comment: str) -> bool:
    """Return whether a job with this name and comment is a lease of some Evenshare installation."""
    return _TOKEN.fullmatch(comment) is not None and name == job_name(comment)


def parse_instant(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


_TOKEN = re.compile(r"[A-Za-z0-9]{1,32}-[0-9]{1,19}-[0-9]{1,10}")
# Final states; a job in an unknown state may still run.
_OVER = frozenset(
    (
        "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL",
        "DEADLINE", "OUT_OF_MEMORY", "REVOKED",
    )
)  # fmt: skip # a table
_QUEUED = frozenset(
    (
        "PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD",
        "SPECIAL_EXIT",
    )
)  # fmt: skip # a table


def is_over(state: str) -> bool:
    """Return whether a job in this Slurm state has no process and will not get one."""
    return state in _OVER


def is_queued(state: str) -> bool:
    """Return whether a job in this Slurm state has not started."""
    return state in _QUEUED


def parse_minutes(limit: str) -> int:
    """Return the minutes of a limit in squeue's format ([days-]hours:minutes:seconds)."""
    days, _, rest = limit.rpartition("-")
    parts = rest.split(":")
    if not all(part.isdecimal() for part in parts) or (days and not days.isdecimal()):
        return UNLIMITED
    seconds = 0
    for part in parts:
        seconds = seconds * 60 + int(part)
    return int(days or 0) * 24 * 60 + seconds // 60


def last_line(text: str) -> str:
    """Return the last line of a tool's output, shortened."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def _batches(job_ids: Iterable[int]) -> list[list[str]]:
    ids = [str(one) for one in sorted(set(job_ids))]
    return [ids[start : start + IDS_AT_ONCE] for start in range(0, len(ids), IDS_AT_ONCE)]
