"""Executors whose programs each have a shim, which records the program's state in a folder.

Folders determine which processes run; the database determines which leases exist. Every call reads
the folders again, so that after a crash the next worker adopts the running processes. A token's
program is never started more than once, because its shim claims the folder by a hard link. Each
executor starts and wakes shims, and detects dead ones, in its own way.
"""

import contextlib
import errno
import json
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import structlog
from django.conf import settings

from evenshare_core.domain.instants import from_us
from evenshare_core.units import MICROSECOND_NS, SECOND_US
from scheduling.engine.executors.base import (
    EXECUTORS,
    ExecutorError,
    ExecutorTraits,
    Extension,
    Launch,
    Report,
    ReportState,
    Stop,
    executor_traits,
    lease_token,
    token_job,
)
from scheduling.engine.executors.limits import clock_skew, dead_mans_limit
from scheduling.engine.executors.local_files import jobs_root
from scheduling.engine.executors.local_spec import LeaseSpec
from scheduling.engine.executors.shim.files import (
    SPEC_BYTES,
    active,
    claim,
    is_others,
    is_ours,
    lease_folder,
    make_private,
    move_away,
    number,
    read_json,
    read_text,
    remove,
    reopen,
    write_first,
    write_json,
    write_text,
)
from scheduling.engine.executors.shim_ends import PoolInstants, report_of
from scheduling.engine.executors.spans import EngineWord
from scheduling.models import Job, Lease, Pool, PoolClock
from scheduling.selectors import stored_texts as texts
from tenants.scopes import engine_scope, site_scope

# If a shim has not claimed its folder within this time, the folder is claimed without it.
CLAIM_S = 30.0
_UID = re.compile(r"[0-9a-f-]{1,64}")

# Errors that occur when a job has replaced a file or folder.
IN_THE_WAY = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO)
T = TypeVar("T")

log = structlog.get_logger(__name__)


# In the class body, `list` would mean the protocol's method.
Reports = list[Report]
Strings = list[str]


class ShimExecutor(ABC):
    """The executor protocol, implemented by shims and their folders."""

    traits: ExecutorTraits
    # Shims end within the grace. A shim that exceeds it by this much is killed.
    cut_off_s = 20.0

    def __init__(self) -> None:
        self._root = jobs_root()

    @abstractmethod
    def _specs(self, job_ids: Sequence[int]) -> dict[str, LeaseSpec]:
        """Return the specifications of the live leases of jobs, by token."""

    @abstractmethod
    def _start(self, wanted: Mapping[str, LeaseSpec]) -> None:
        """Prepare each token's folder and start a shim there, unless one is starting already.

        Raises:
            ExecutorError: not all could be started; the caller retries.
        """

    @abstractmethod
    def _wake(self, tokens: Mapping[str, dict[str, Any] | None]) -> dict[str, EngineWord]:
        """Write `stop` for claimed shims, and prevent others; return the engine's observations."""

    @abstractmethod
    def _settle(
        self, pool_id: int, tokens: Sequence[str]
    ) -> tuple[set[str], dict[str, EngineWord]]:
        """Record ends that shims missed; return unknown tokens and the engine's observations.

        Also end processes that still run in the engine although their folder records an end.
        """

    @abstractmethod
    def _look(self, tokens: Sequence[str], fresh: Collection[str]) -> dict[str, EngineWord | None]:
        """Return the engine's observations of launched tokens; None for unknown tokens.

        `fresh` tokens were launched just now. They are left out if the engine cannot know them yet.
        """

    def launch(self, launches: Sequence[Launch]) -> list[Report]:
        """Start a shim per unclaimed token; after a moment, report the programs that run.

        Raises:
            ExecutorError: a shim cannot be started here.
        """
        specs = self._specs([one.job_id for one in launches])
        with refusing("no process can be started"):
            self._require_folder()
            fresh = self._reopening(specs, lambda: self._begin(launches, specs))
            seen = self._look([one.token for one in launches], fresh)
            asked = {one.token: one.at_us for one in launches if one.token in seen}
            reports = self._reports(asked, seen)
        known = {report.token for report in reports}
        # The other tokens have shims that are still starting, without a claim or a running program.
        return reports + [
            Report(one.token, ReportState.ACCEPTED, one.at_us)
            for one in launches
            if one.token in specs and one.token not in known
        ]

    def _begin(self, launches: Sequence[Launch], specs: Mapping[str, LeaseSpec]) -> Strings:
        """Start the tokens that are not claimed; return them."""
        for one in specs.values():
            self._put_aside(one.lease)
        fresh = [one.token for one in launches if self._claim(one.token) is None]
        self._start({token: specs[token] for token in fresh if token in specs})
        return fresh

    def stop(self, stops: Sequence[Stop]) -> list[Report]:
        """Ask shims to make their programs checkpoint; `list` reports the end."""
        with refusing("processes cannot be asked to stop"):
            clocks = self._clocks([stop.token for stop in stops])
            grace = {}
            for stop in stops:
                scale = clocks[stop.token].scale if stop.token in clocks else 1
                grace[stop.token] = stop.grace_us / SECOND_US / scale
            seen = self._ask(grace)
            reports = self._reports({stop.token: stop.at_us for stop in stops}, seen)
        return [report for report in reports if report.state is not ReportState.RUNNING]

    def extend(self, pool_id: int, leases: Sequence[Extension]) -> None:
        """Move the dead man's limit of processes to their leases' expiry plus the outage grace."""
        if not leases:
            return
        pool = Pool.objects.select_related("clock").get(pk=pool_id)
        skew = clock_skew()
        for lease in leases:
            folder = lease_folder(self._root, lease.token)
            limit = str(dead_mans_limit(pool, from_us(lease.until_us), skew))
            # On a full disk the old limit stays, until the next round tries again.
            with contextlib.suppress(OSError):
                if _noted_limit(folder) not in ("", limit):
                    write_text(folder / "until", limit)

    def list(self, pool_id: int, at_us: int) -> list[Report]:
        """Report running processes, those that ended by `at_us`, and those that vanished."""
        with refusing("running processes are unknown"):
            return self._reopening(self._active(pool_id), lambda: self._listed(pool_id, at_us))

    def _reopening(self, tokens: Iterable[str], act: Callable[[], T]) -> T:
        """Run `act`; if a job has closed its own folders, reopen them and run it again."""
        try:
            return act()
        except PermissionError:
            for token in tokens:
                reopen(lease_folder(self._root, token))
            return act()

    def _listed(self, pool_id: int, at_us: int) -> Reports:
        live = _live_tokens(pool_id)
        self._require_folder()
        tokens = self._active(pool_id)
        # End processes whose leases are over in the database, for example after a restore.
        self._ask({token: 0.0 for token in tokens if token not in live})
        # A job can remove the `active` entry of its lease, so add all live tokens.
        every = [*tokens, *sorted(live - tokens.keys())]
        unknown, seen = self._settle(pool_id, every)
        asked = {token: at_us for token in every if token not in unknown}
        reports = self._reports(asked, seen)
        reported = {report.token for report in reports} | unknown
        # The other tokens have shims that were started but have not claimed their folder yet.
        return reports + [
            Report(token, ReportState.ACCEPTED, at_us) for token in tokens if token not in reported
        ]

    def forget(self, tokens: Sequence[str]) -> None:
        """Drop specifications. Claims, exits and logs stay, so that no program starts again."""
        for token in tokens:
            folder = lease_folder(self._root, token)
            notes = (
                self._root / "active" / token,
                self._note(token, "span"),
                self._note(token, "stop"),
            )
            for path in (*notes, folder / "spec.json", folder / "until"):
                remove(path)

    def _require_folder(self) -> None:
        """Check that the root folder exists: without it, all leases would seem to have vanished.

        Raises:
            ExecutorError: leases run, and the folder with their records is missing.
        """
        if (self._root / "active").is_dir():
            return
        held = (Lease.State.RUNNING, Lease.State.STOPPING)
        names = [name for name in EXECUTORS if executor_traits(name) is self.traits]
        with site_scope():
            runs = Lease.objects.filter(pool__executor__in=names, state__in=held).exists()
        if runs:
            raise ExecutorError(
                texts.FOLDER_GONE.format(folder=self._root, active=self._root / "active")
            )

    def _claim(self, token: str) -> dict[str, Any] | None:
        """Return the claim of a token's shim; if its job made it unreadable, the job has ended."""
        return self._said(token, "shim.json", closed={"never": True})

    def _exit(self, token: str) -> dict[str, Any] | None:
        """Return the recorded end of a shim's program, or None if no record can be read."""
        return self._said(token, "exit.json", closed=None)

    def _said(
        self, token: str, name: str, *, closed: dict[str, Any] | None
    ) -> dict[str, Any] | None:
        path = lease_folder(self._root, token) / name
        try:
            return read_json(path)
        except (PermissionError, BlockingIOError):
            # The file's mode or a file lease prevents reading; our own files can be reopened.
            if not is_others(path):
                raise
            return closed

    def _put_aside(self, lease: Lease) -> None:
        """Rename a job folder of another database, which may have used the same job number."""
        job = self._root / str(lease.job_id)
        former = read_text(job / "uid")
        if _UID.fullmatch(former) and former != str(lease.job.uid):
            kept = job.with_name(f"{job.name}.{former}")
            # The job may have written this file itself, or replaced it.
            job.rename(f"{kept}.{time.monotonic_ns()}" if os.path.lexists(kept) else kept)

    def _prepare(self, token: str, start: LeaseSpec) -> None:
        is_new = self._make(token, start.lease)
        # A shim of an earlier attempt may be reading the old file.
        write = write_first if is_new else write_text
        said = json.dumps({**start.spec, "until": start.limit})
        write(lease_folder(self._root, token) / "spec.json", said)

    def _make(self, token: str, lease: Lease) -> bool:
        """Create a lease's private folders and `active` entry; return whether its folder is new."""
        folder = lease_folder(self._root, token)
        job = folder.parents[1]
        is_new = make_private(self._root, job, folder.parent, folder)
        if read_text(job / "uid") != str(lease.job.uid):
            write_first(job / "uid", str(lease.job.uid))
        entry = self._root / "active" / token
        make_private(self._root, entry.parent)
        write_first(entry, str(lease.pool_id))
        return is_new

    def _clearing(self, token: str, act: Callable[[], T]) -> T:
        """Run `act`. If the job has put a file or folder in the way, rename it and run `act` again.

        A job that replaces its files by folders loses these files; other jobs continue.
        """
        lease = lease_folder(self._root, token)
        job = lease.parents[1]
        for places in ((job, lease.parent, lease), (job,)):
            try:
                return act()
            except OSError as error:
                if error.errno not in IN_THE_WAY:
                    raise
                log.warning("executor.in_the_way", token=token, error=str(error))
                remove(self._root / "active" / token, only_folders=True)
                move_away(*places)
        return act()

    def _ask(self, grace: Mapping[str, float]) -> dict[str, EngineWord]:
        """Ask shims to stop within their `grace` in seconds; return the engine's observations.

        Unclaimed tokens never start.
        """
        failed: OSError | None = None
        for token, grace_s in grace.items():
            try:
                self._clearing(token, partial(self._note_stop, token, grace_s))
            # a tenant's disk quota is full, for example: continue with the other jobs
            except OSError as error:
                failed = failed or error
        seen = self._wake({token: self._claim(token) for token in grace}) if grace else {}
        if failed is not None:
            raise failed
        return seen

    def _note_stop(self, token: str, grace_s: float) -> None:
        folder, noted = lease_folder(self._root, token), self._note(token, "stop")
        if not noted.exists():
            make_private(self._root, noted.parent)
            write_json(noted, {"grace_s": grace_s})
        if self._claim(token) is None:
            # Claim the folder before its shim does, so that no program starts. If a shim runs
            # already and its job only removed its claim, this claim does not stop the shim.
            self._claim_for_ever(token)
        # A job with its own user may have written a `stop` with an endless grace.
        if not is_ours(folder / "stop"):
            write_json(folder / "stop", {"grace_s": grace_s})

    def _note(self, token: str, name: str) -> Path:
        """Return the path of a note that the job cannot change: `span` (its times) or `stop`."""
        return self._root / "engine" / f"{token}.{name}"

    def _is_overdue(self, token: str) -> bool:
        """Return whether a shim was asked to stop, and is long past its grace."""
        stop = self._note(token, "stop")
        asked = read_json(stop)
        return (
            asked is not None and age_s(stop) > number(asked.get("grace_s"), 0.0) + self.cut_off_s
        )

    def _claim_for_ever(self, token: str) -> bool:
        folder = lease_folder(self._root, token)
        make_private(self._root, folder.parents[1], folder.parent, folder)
        if claim(folder, never=True) is not None:
            return True
        if self._claim(token) is None:
            raise FileExistsError(
                errno.EEXIST, "there is no claim, and none can be created", str(folder)
            )
        return False

    def _give_up_unclaimed(self, token: str) -> None:
        """Claim a launched token whose shim is long overdue, so that none comes later."""
        if self._claim(token) is None and age_s(self._root / "active" / token) > CLAIM_S:
            self._clearing(token, partial(self._claim_for_ever, token))

    def _is_open(self, token: str) -> bool:
        """Return whether a shim has claimed the token and has not recorded the program's end."""
        record = self._claim(token)
        if record is None or record.get("never"):
            return False
        return self._exit(token) is None

    def _note_lost(self, token: str) -> None:
        """Record that a shim died without recording its end."""
        lost = {
            "started_us": (self._claim(token) or {}).get("started_us"),
            "ended_us": time.time_ns() // MICROSECOND_NS,
            "lost": True,
        }
        write_json(lease_folder(self._root, token) / "exit.json", lost, durably=True)

    def _active(self, pool_id: int) -> dict[str, None]:
        """Return the pool's tokens whose end is not recorded yet."""
        entries = active(self._root)
        return {entry.name: None for entry in entries if read_text(entry) == str(pool_id)}

    def _reports(self, asked: Mapping[str, int], seen: Mapping[str, EngineWord | None]) -> Reports:
        """Return reports from observations and folders, each for its token's requested time."""
        clocks = self._clocks(asked)
        skew = clock_skew() if clocks else timedelta(0)
        reports = []
        for token, at_us in asked.items():
            clock = clocks.get(token)
            if clock is not None:
                report = report_of(
                    token, at_us, PoolInstants(clock, skew), claim=self._claim(token),
                    ended=self._exit(token), seen=seen.get(token),
                )  # fmt: skip # rows of what belongs together
                reports += [report] if report is not None else []
        return reports

    def _clocks(self, tokens: Iterable[str]) -> dict[str, PoolClock]:
        """Return the clock of each token's pool; for an unknown job, that of the launching pool."""
        jobs = Job.objects.filter(id__in=set(map(token_job, tokens)))
        with site_scope():
            known = dict(jobs.values_list("id", "pool_id"))
        pools = {token: known.get(token_job(token)) for token in tokens}
        for token, pool in pools.items():
            if pool is None and (noted := read_text(self._root / "active" / token)).isdigit():
                pools[token] = int(noted)
        clocks = PoolClock.objects.in_bulk(set(pools.values()))
        return {token: clocks[pool] for token, pool in pools.items() if pool in clocks}


@contextlib.contextmanager
def refusing(what: str) -> Iterator[None]:
    """Turn a full disk or missing rights into ExecutorError, so that the engine retries later."""
    try:
        yield
    except OSError as error:
        raise ExecutorError(f"{what}: {error}") from error


def _noted_limit(folder: Path) -> str:
    """Return the limit of a lease's shim as text; empty if it has none, or no longer needs one."""
    moved = read_text(folder / "until")
    if moved:
        return moved
    spec = read_json(folder / "spec.json", at_most=SPEC_BYTES)
    return "" if spec is None else str(spec.get("until"))


def _live_tokens(pool_id: int) -> set[str]:
    live = Lease.objects.filter(pool_id=pool_id).exclude(state=Lease.State.ENDED)
    with engine_scope(pool_id):
        rows = list(live.values_list("job_id", "number"))
    return {lease_token(job, number, settings.INSTALLATION) for job, number in rows}


def age_s(path: Path) -> float:
    """Return the seconds since a file was written; 0 if it does not exist."""
    with contextlib.suppress(OSError):
        return time.time() - path.stat().st_mtime
    return 0.0
