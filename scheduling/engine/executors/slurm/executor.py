"""`slurm`: one Slurm job per lease, whose batch script is the lease's shim.

Evenshare decides which job runs where, and Slurm runs it: a Slurm job requests exactly the nodes
that the policy chose. The folders of jobs are on a file system that all nodes share. The shim works
as for `local`: it claims its lease, starts the program, asks it to checkpoint, and records its end.
So a lease's program never starts more than once, whatever Slurm does. Slurm's ids may be reused, so
they are only hints.
"""

import contextlib
import math
import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import structlog
from django.conf import settings

from evenshare_core.domain.instants import from_us
from evenshare_core.units import MICROSECOND_NS, SECOND_US
from scheduling.engine.executors.base import ExecutorTraits, Extension, token_job
from scheduling.engine.executors.limits import clock_skew, dead_mans_limit
from scheduling.engine.executors.local_spec import (
    LOG_BYTES,
    LeaseSpec,
    Surroundings,
    read_specs,
)
from scheduling.engine.executors.node_source import EngineNode
from scheduling.engine.executors.shim.files import (
    lease_folder,
    read_text,
    remove,
    write_text,
)
from scheduling.engine.executors.shim.log import Log
from scheduling.engine.executors.shim.rendezvous import single_node_facts
from scheduling.engine.executors.shim_executor import CLAIM_S, ShimExecutor, age_s
from scheduling.engine.executors.slurm.commands import (
    Slurm,
    SlurmJob,
    Submission,
    SubmissionRefusedError,
    is_over,
    is_queued,
    lease_jobs,
)
from scheduling.engine.executors.slurm.gang import gang_spec
from scheduling.engine.executors.slurm.installed import install_shim
from scheduling.engine.executors.slurm.lease_submission import SLACK_MINUTES, lease_submission
from scheduling.engine.executors.slurm.nodes import (
    drain_nodes,
    read_cluster,
    read_nodes,
    resume_nodes,
)
from scheduling.engine.executors.slurm.options import SlurmOptions, read_options
from scheduling.engine.executors.slurm.restd import RestdSlurm, connect
from scheduling.engine.executors.slurm.restd_http import RestdRefusedError
from scheduling.engine.executors.slurm.restd_nodes import read_restd_nodes
from scheduling.engine.executors.slurm.users import (
    UserRefusedError,
    close_folders,
    share_folders,
    submitted_as,
    user_of,
)
from scheduling.engine.executors.spans import EngineWord, instant
from scheduling.models import Job, Lease, Pool
from scheduling.selectors import stored_texts as texts
from tenants.scopes import site_scope

# An unlisted lease is lost only after this time: a restarted controller may forget its jobs.
SILENCE_S = 600
# After the end of a Slurm job, its shim's record may take this long to become visible here.
LAST_WORD_S = 5.0
# If a job runs this long without a claim, it is not ours, or its node cannot read the folder.
NO_SHIM_S = 120.0
LEAST_LEFT_S = 300.0
# The variables in which Slurm describes its allocation to a batch script.
SET_BY_SLURM = (
    "SLURM_",
    "CUDA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "ZE_AFFINITY_MASK",
)
# Environment variables that Slurm's tools read as options: a job must not set them.
OPTIONS_OF_TOOLS = ("SLURM_", "SBATCH_", "SRUN_", "SCANCEL_", "SQUEUE_")

log = structlog.get_logger(__name__)


class SlurmExecutor(ShimExecutor):
    """Starts shims through Slurm, and queries Slurm about shims without a record."""

    traits = ExecutorTraits(
        keeps_output=True,
        keeps_files=True,
        reports_usage=True,
        has_nodes=True,
        title="Slurm",
        silence_s=SILENCE_S,
        options_type=SlurmOptions,
        finds_by=("conf", "partition"),
        host_options=("conf", "path", "python", "restd", "submit_as", "users"),
    )

    def extend(self, pool_id: int, leases: Sequence[Extension]) -> None:
        """Move the limits of shims, and Slurm's time limits that would end a job too early."""
        super().extend(pool_id, leases)
        pool = Pool.objects.select_related("clock").get(pk=pool_id)
        options = read_options(pool.executor_options, pool.name)
        if not leases:
            return
        slurm = connect(options)
        queue = self._queue(slurm)
        skew = clock_skew()
        minutes = {}
        for lease in leases:
            job = queue.get(lease.token)
            if job is None or job.state != "RUNNING" or job.started is None or job.ended is None:
                continue
            # A job of this limit keeps it. Jobs from before the option was set have another one.
            if job.limit_minutes == options.limit_minutes:
                continue
            until = dead_mans_limit(pool, from_us(lease.until_us), skew)
            if job.ended < until + LEAST_LEFT_S:
                minutes[job.job_id] = math.ceil((until - job.started) / 60) + SLACK_MINUTES
        slurm.limit(minutes)

    def cluster(self, pool_id: int) -> str:
        """Return a key that identifies the pool's cluster."""
        return read_cluster(self._cluster(pool_id))

    def nodes(self, pool_id: int) -> list[EngineNode]:
        slurm = self._cluster(pool_id)
        return read_restd_nodes(slurm) if isinstance(slurm, RestdSlurm) else read_nodes(slurm)

    def drain(self, pool_id: int, reasons: Mapping[str, str]) -> None:
        drain_nodes(self._cluster(pool_id), reasons)

    def resume(self, pool_id: int, names: Collection[str]) -> None:
        """Undo drains that this portal made."""
        resume_nodes(self._cluster(pool_id), names)

    def _specs(self, job_ids: Sequence[int]) -> dict[str, LeaseSpec]:
        def surroundings(pool: Pool) -> Surroundings:
            options = read_options(pool.executor_options, pool.name)
            # The demo's cluster ends with the portal; the lifeline ends its jobs even after a kill.
            is_demo = options.conf and options.conf == settings.DEMO_SLURM_CONF
            lifeline = os.environ.get("EVENSHARE_LIFELINE", "") if is_demo else ""
            return Surroundings(options.search_path, names_gpus=False, lifeline=lifeline)

        specs = read_specs(self._root, job_ids, surroundings)
        shim = str(install_shim(self._root)) if specs else ""
        for token, one in specs.items():
            options = read_options(one.lease.pool.executor_options, one.lease.pool.name)
            one.spec["inherit"] = list(SET_BY_SLURM)
            one.spec["env"] = {
                key: value
                for key, value in one.spec["env"].items()
                if not key.startswith(OPTIONS_OF_TOOLS)
            }
            if len(one.shares) > 1:
                folder = str(lease_folder(self._root, token))
                command = [options.interpreter, "-I", "-S", shim, "--gang", folder]
                one.spec.update(gang_spec(one, command))
            else:
                facts = single_node_facts(f"{one.lease.job_id}-{one.lease.number}")
                one.spec["env"] = {**facts, **one.spec["env"]}
        return specs

    def _start(self, wanted: Mapping[str, LeaseSpec]) -> None:
        """Submit the leases that Slurm does not have yet."""
        # If the answer of an earlier submission was lost, Slurm already has the lease.
        begun = {token for token in wanted if (self._root / "active" / token).exists()}
        ready, failed = self._with_users(wanted)
        for pool in {one.lease.pool_id: one.lease.pool for one in ready.values()}.values():
            slurm = connect(read_options(pool.executor_options, pool.name))
            own = {token: one for token, one in ready.items() if one.lease.pool_id == pool.pk}
            queue = self._queue(slurm) if begun & own.keys() else {}
            fresh = {
                token: partial(self._prepared, slurm.options, token, one)
                for token, one in own.items()
                # An ended job without a claim ran no program. It may even belong to another lease
                # that had this token before the database was restored.
                if (job := queue.get(token)) is None or is_over(job.state)
            }
            for token, answer in slurm.submit(fresh).items():
                if isinstance(answer, SubmissionRefusedError):
                    self._refuse(token, str(answer))
                elif isinstance(answer, Exception):
                    failed.append(answer)
                elif slurm.options.users:
                    with contextlib.suppress(OSError):
                        write_text(_note_of(lease_folder(self._root, token), "job"), str(answer))
        if failed:
            raise failed[0]

    def _prepared(self, options: SlurmOptions, token: str, one: LeaseSpec) -> Submission:
        try:
            self._clearing(token, partial(self._prepare, token, one))
        except UserRefusedError as refusal:
            raise SubmissionRefusedError(str(refusal)) from refusal
        return lease_submission(self._root, options, token, one)

    def _with_users(
        self, wanted: Mapping[str, LeaseSpec]
    ) -> tuple[dict[str, LeaseSpec], list[Exception]]:
        """Share folders with jobs' users; return leases that may start, and errors to retry."""
        ready, failed = {}, list[Exception]()
        for token, one in wanted.items():
            try:
                if read_options(one.lease.pool.executor_options, one.lease.pool.name).users:
                    self._clearing(token, partial(self._make, token, one.lease))
                ready[token] = one
            except UserRefusedError as refusal:
                self._refuse(token, str(refusal))
            except OSError as error:  # a tenant's disk quota is full, for example
                failed.append(error)
        return ready, failed

    def _make(self, token: str, lease: Lease) -> bool:
        options = read_options(lease.pool.executor_options, lease.pool.name)
        user = user_of(options, lease.tenant.slug)
        is_new = super()._make(token, lease)
        if user is None:
            close_folders(self._root, token)
            return is_new
        try:
            share_folders(self._root, token, user)
        except PermissionError as error:
            why = texts.FOLDER_NOT_SHARED.format(user=user.name, error=error)
            raise UserRefusedError(why) from error
        return is_new

    def _queue(self, slurm: Slurm) -> dict[str, SlurmJob]:
        """Return the jobs of leases that belong to the user of their submission."""
        return slurm.queue(submitted_as(self._root))

    def _refuse(self, token: str, why: str) -> bool:
        """End a lease that Slurm never runs, and write the reason to its output.

        Return False if a shim of an earlier submission claimed the lease and runs its program.
        """
        if not self._clearing(token, partial(self._claim_for_ever, token)):
            claim = self._claim(token)
            if claim is not None and not claim.get("never"):
                return False
        log.warning("executor.job_refused", token=token, error=why)
        folder = lease_folder(self._root, token)
        # A job's own user may have replaced the file by a link to another file.
        remove(folder / "out.log")
        Log(folder, LOG_BYTES).note(f"Slurm does not run this job: {why}")
        return True

    def _wake(self, tokens: Mapping[str, dict[str, Any] | None]) -> dict[str, EngineWord]:
        seen: dict[str, EngineWord] = {}
        for pool_id, own in self._by_pool([*tokens]).items():
            slurm = self._cluster(pool_id)
            queue = self._queue(slurm)
            jobs = {token: queue[token] for token in own if token in queue}
            seen |= {token: self._saw(token, job) for token, job in jobs.items()}
            claims = {token: tokens[token] or {"never": True} for token in jobs}
            going = {token: job for token, job in jobs.items() if not is_over(job.state)}
            slurm.cancel(job.job_id for one, job in going.items() if claims[one].get("never"))
            # If the signal does not arrive, the shim finds the request itself a little later.
            shims = [job for one, job in going.items() if not claims[one].get("never")]
            slurm.cancel((job.job_id for job in shims), signal="TERM")
        return seen

    def _look(self, tokens: Sequence[str], fresh: Collection[str]) -> dict[str, EngineWord | None]:
        seen: dict[str, EngineWord | None] = {}
        for pool_id, own in self._by_pool([one for one in tokens if one not in fresh]).items():
            queue = self._queue(self._cluster(pool_id))
            seen |= {
                token: self._saw(token, queue[token]) if token in queue else None for token in own
            }
        return seen

    def _saw(self, token: str, job: SlurmJob) -> EngineWord:
        """Return when Slurm started and ended a job; the shim's record may come a little later."""
        started_us = None if job.started is None else job.started * SECOND_US
        if not is_over(job.state):
            # A start counts once the program has started, or after CLAIM_S, since the job holds
            # GPUs then.
            says_start = instant((self._claim(token) or {}).get("started_us")) is not None
            is_due = says_start or _seconds_since(job.started) > CLAIM_S
            return EngineWord(started_us if is_due and not is_queued(job.state) else None)
        is_silent = self._exit(token) is None and not (self._claim(token) or {}).get("never")
        if is_silent and _seconds_since(job.ended) <= LAST_WORD_S:
            return EngineWord(started_us)
        ended_us = time.time_ns() // MICROSECOND_NS if job.ended is None else job.ended * SECOND_US
        return EngineWord(started_us, ended_us)

    def _end_what_runs_on(self, slurm: Slurm, queue: Mapping[str, SlurmJob]) -> None:
        """End Slurm jobs that run although their folder, which jobs can change, records an end."""
        left = [
            job.job_id
            for token, job in queue.items()
            if token.startswith(f"{settings.INSTALLATION}-")
            and not is_over(job.state)
            # `_settle` handles jobs whose end is not recorded yet.
            and not (self._root / "active" / token).exists()
            and self._is_long_over(token)
        ]
        if left:
            log.warning("executor.runs_on", jobs=left)
            _end(slurm, left)

    def _is_long_over(self, token: str) -> bool:
        """Return whether the folder has recorded for some time that the lease's process is over."""
        claim = self._claim(token)
        if claim is None or self._is_open(token):
            return False
        # The time is recorded here, since a job can change the times of its files.
        seen = _note_of(lease_folder(self._root, token), "over")
        if not seen.exists():
            with contextlib.suppress(OSError):
                write_text(seen, "")
        return age_s(seen) > self.cut_off_s

    def _settle(
        self, pool_id: int, tokens: Sequence[str]
    ) -> tuple[set[str], dict[str, EngineWord]]:
        """Record jobs that Slurm ended without a shim's record as lost; return unknown tokens."""
        try:
            slurm = self._cluster(pool_id)
        except Pool.DoesNotExist:
            return set(), {}
        jobs = slurm.jobs()
        queue = lease_jobs(jobs, submitted_as(self._root))
        self._end_what_runs_on(slurm, queue)
        renamed = self._renamed(jobs, [token for token in tokens if token not in queue])
        unknown: set[str] = set()
        overdue = []
        for token in tokens:
            job = queue.get(token) or renamed.get(token)
            if self._claim(token) is None:
                overdue += self._settle_unclaimed(token, job)
            elif not self._is_open(token):
                if job is not None and not is_over(job.state) and self._is_long_over(token):
                    overdue.append(job.job_id)
            elif job is None:
                unknown.add(token)
            elif is_over(job.state):
                self._clearing(token, partial(self._bury, token, job))
            elif token in renamed or self._is_overdue(token) or self._hides_its_start(token, job):
                overdue.append(job.job_id)
        _end(slurm, overdue)
        known = {token: queue.get(token) or renamed.get(token) for token in tokens}
        return unknown, {token: self._saw(token, job) for token, job in known.items() if job}

    def _renamed(
        self, jobs: Iterable[tuple[SlurmJob, int]], tokens: Sequence[str]
    ) -> dict[str, SlurmJob]:
        """Return the Slurm jobs of leases whose name or comment was changed, by token.

        A job's user may change them, and the job could then not be stopped. The job id is only a
        hint: a controller that lost its state starts numbering jobs again.
        """
        is_ours = submitted_as(self._root)
        ids = {self._submitted_id(token): token for token in tokens if self._is_open(token)}
        ids.pop(None, None)
        return {
            ids[job.job_id]: job
            for job, uid in jobs
            if job.job_id in ids
            and is_ours(ids[job.job_id], uid)
            and not (job.token and self._submitted_id(job.token) == job.job_id)
        }

    def _submitted_id(self, token: str) -> int | None:
        """Return the Slurm id of a lease's job; it is recorded only if the job has its own user."""
        noted = read_text(_note_of(lease_folder(self._root, token), "job"), at_most=20)
        return int(noted) if noted.isdecimal() else None

    def _settle_unclaimed(self, token: str, job: SlurmJob | None) -> list[int]:
        """End a lease that no shim claims; return the Slurm job to cancel for it, if any."""
        if job is None:
            # The submission was lost, or the controller forgot the job.
            self._give_up_unclaimed(token)
        elif is_over(job.state):
            if _seconds_since(job.ended) > LAST_WORD_S:
                self._refuse(token, f"it ended before its program started ({job.state})")
        elif job.state == "RUNNING" and job.started and _seconds_since(job.started) > NO_SHIM_S:
            refused = self._refuse(token, f"nothing started on its node within {NO_SHIM_S:g} s")
            return [job.job_id] if refused else []
        return []

    def _bury(self, token: str, job: SlurmJob) -> None:
        folder = lease_folder(self._root, token)
        # A write into the folder makes a network file system show new files in it.
        write_text(folder / ".asked", "")
        if self._is_open(token) and _seconds_since(job.ended) > LAST_WORD_S:
            log.warning("executor.job_lost", token=token, job=job.job_id, state=job.state)
            # A disconnected node may still run the job. Its shim reads this once it is back.
            self._note_stop(token, 0.0)
            self._note_lost(token)

    def _hides_its_start(self, token: str, job: SlurmJob) -> bool:
        """Return whether a claimed job runs without a recorded start, so that it is not charged."""
        started = (self._claim(token) or {}).get("started_us")
        return (
            not isinstance(started, int)
            and job.state == "RUNNING"
            and bool(job.started)
            and _seconds_since(job.started) > NO_SHIM_S
        )

    def _by_pool(self, tokens: Sequence[str]) -> dict[int, list[str]]:
        """Return tokens by the pool that launched them, or else by their job's pool."""
        jobs = Job.objects.filter(id__in={token_job(token) for token in tokens})
        with site_scope():
            known = dict(jobs.values_list("id", "pool_id"))
        pools: dict[int, list[str]] = {}
        for token in tokens:
            noted = read_text(self._root / "active" / token)
            pool_id = int(noted) if noted.isdigit() else known.get(token_job(token))
            if pool_id is not None:
                pools.setdefault(pool_id, []).append(token)
        return pools

    def _cluster(self, pool_id: int) -> Slurm:
        pool = Pool.objects.only("name", "executor_options").get(pk=pool_id)
        return connect(read_options(pool.executor_options, pool.name))


def _end(slurm: Slurm, job_ids: Collection[int]) -> None:
    """Cancel jobs; log a refusal and continue with the other jobs, because a later call retries."""
    try:
        slurm.cancel(job_ids)
    except RestdRefusedError as error:
        log.warning("executor.cancel_refused", jobs=list(job_ids), error=str(error))


def _note_of(lease: Path, name: str) -> Path:
    """Return the path of a portal's note on a lease; a job with another user cannot write there."""
    return lease.with_name(f".{lease.name}.{name}")


def _seconds_since(instant: int | None) -> float:
    return time.time() - instant if instant is not None else math.inf
