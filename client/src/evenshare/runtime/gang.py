"""Keeps the newest snapshot of each rank of a gang, so that all resume from the same step.

Every rank calls `resume` and then `store` after the same steps, so the n-th stores of all ranks
belong together. A checkpoint is a set of files of the same store, one per rank (`sets`); it counts
once all of them exist. Ranks communicate by small files in the job's folder (`board`): no socket,
and no clock that two machines share. Rank 0 reads them all and publishes its conclusions, which
follow only from the files.

**Start.** Each rank publishes a random number and the complete sets that it finds (it reads only
its own file of each). Rank 0 waits for all ranks, chooses the newest set that all of them have, and
publishes it with all the numbers. The digest of the numbers is the *run*, a part of each file's
name: ranks that did not start together never complete a set together.

**Periodically** (`every_s`) rank 0 names a store that no rank has reached yet. Each rank's thread
writes that one while training continues. If a rank has passed this store already, its set is never
completed, and rank 0 names a store further ahead.

**End.** The signal reaches each rank at its own time; a rank that reads of another rank's signal
acts as if it had received it. Each rank publishes its number of stores (its *position*), keeps that
snapshot, and waits in its next store. Once rank 0 knows all positions, it publishes the highest.
Ranks continue up to that store and write its snapshot, which the furthest ranks have already. No
rank may end while another waits for it in a collective. So all ranks continue by one more step,
write that store too, and wait in it until it is complete. Then they end with 99.

**Failures.** A rank waits until shortly before the end of the grace. Then it ends with 99 if the
set of the highest position is complete, for instance if a step takes longer than the grace.
Otherwise it ends with 74, and the last complete set stays valid. The moment at which a rank is
killed does not matter: its file is complete or absent. If a rank ends by itself, the others do not
wait for it: they run until they end, too, or until the grace is over. A process of an older lease
can neither write nor remove files, and its messages are not read.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import threading
import time
from typing import Any, NoReturn, TypeVar

from .board import RankBoard
from .checkpoints import (
    Checkpoint,
    RanksChangedError,
    StaleLeaseError,
    put_file,
    read_part,
    read_parts,
)
from .contract import CHECKPOINTED, NOT_WRITTEN, Contract
from .keeper import TICK_S, UNWRITTEN, Keeper, end_fenced, flush_stdio, say
from .sets import (
    KEEP,
    CheckpointSet,
    clear_unfinished,
    complete_sets,
    highest_sequence,
    prune,
)

POLL_S = 0.05
# Seconds to wait for all ranks at the start, which may be minutes apart, before `resume` fails.
BEGIN_PATIENCE_S = 900.0
SAY_WHOM_AFTER_S = 10.0
FLUSH_PATIENCE_S = 300.0
# Rank 0 names a store this far ahead, because all ranks must read its number before they reach it.
AHEAD_S = 3 * TICK_S
LEAST_AHEAD, MOST_AHEAD = 2, 2**20

T = TypeVar("T")


class GangKeeper(Keeper):
    """Keeps the newest snapshot of a rank; all ranks agree on the store to write."""

    def __init__(self, contract: Contract, *, every_s: float) -> None:
        super().__init__(contract, every_s=every_s)
        assert contract.folder is not None
        self._rank, self._size = contract.rank, contract.size
        self._board = RankBoard(
            contract.folder / "ranks", contract.lease, contract.restart, self._rank, self._size
        )
        self._changed = threading.Condition()
        self._run = ""
        self._begun_with: CheckpointSet | None = None
        self._begun_at = 0.0
        self._left = False
        # Store numbers are continued within a lease, also after a restart.
        self._first = self._stored = 0
        self._snapshot: bytes | None = None
        self._pending: dict[int, bytes] = {}
        self._queued: set[int] = set()
        self._is_flushing = False
        self._announced: int | None = None
        self._kept: bytes | None = None
        self._highest: int | None = None
        self._complete = 0
        self._released = False
        self._due = 0
        self._due_again_at = 0.0
        self._ahead = 1

    def resume(self) -> Checkpoint | None:
        """Return this rank's checkpoint of the newest set that all ranks have."""
        self._begin()
        newest = self._begun_with
        if newest is None:
            return None
        if newest.size != self._size:
            raise RanksChangedError(newest.size, self._size)
        return _required(read_part(self._folder.path, newest, self._rank), newest)

    def resume_all(self) -> list[Checkpoint]:
        """Return the checkpoints of all ranks of the newest set, whatever its number of ranks."""
        self._begin()
        newest = self._begun_with
        if newest is None:
            return []
        return _required(read_parts(self._folder.path, newest), newest)

    def store(self, body: bytes) -> None:
        """Make this the newest snapshot, and wait for the other ranks if the lease is ending."""
        if self._forked:
            return
        self._begin()
        with self._changed:
            self._stored += 1
            self._snapshot = body
            if self._stored in (self._due, self._highest):
                self._queue(self._stored, body)
            if not self.asked or not self._is_last(self._stored):
                return
        self.leave()

    def flush(self) -> None:
        """Write the newest snapshot of each rank, and wait until all are written.

        Raises TimeoutError, a kind of OSError, if another rank does not write.
        """
        if self._forked:
            return
        with self._changed:
            number, body = self._stored, self._snapshot
            if body is None or self._complete >= number:
                return
            self._queue(number, body)
            self._is_flushing = True
            self._wake()
            deadline = time.monotonic() + FLUSH_PATIENCE_S
            while self._complete < number:
                if self._released or time.monotonic() > deadline:
                    raise TimeoutError("not every rank has written its checkpoint")
                self._changed.wait(POLL_S)
            self._is_flushing = False

    def leave(self) -> NoReturn:
        """Exit with 99 once the newest snapshots of all ranks are written."""
        self._left = True
        super().leave()

    def _begin(self) -> None:
        """Find the other ranks; only the first call waits."""
        if self._run:
            return
        try:
            self._agree()
        except StaleLeaseError as stale:
            end_fenced(stale)

    def _agree(self) -> None:
        path = self._folder.path
        self._fence.check()
        path.mkdir(parents=True, exist_ok=True)
        self._board.open()
        self._board.say(
            whole=[list(one) for one in complete_sets(path)[: KEEP + 1] if self._finds_whole(one)],
            used=highest_sequence(path, self.contract.lease),
        )
        agreed = self._await_agreement()
        with self._changed:
            self._first = self._stored = self._complete = int(agreed["used"])
            self._begun_with = CheckpointSet(*agreed["from"]) if agreed["from"] else None
            self._begun_at = time.monotonic()
            self._run = agreed["run"]

    def _finds_whole(self, one: CheckpointSet) -> bool:
        """Return whether this rank can read its share of a set's files.

        The share is its own file, if the set has as many files as there are ranks.
        """
        share = range(self._rank, one.size, self._size)
        return all(read_part(self._folder.path, one, rank) for rank in share)

    def _await_agreement(self) -> dict[str, Any]:
        began = time.monotonic()
        said = False
        while True:
            if self.asked:
                self.leave()
            self._fence.check()
            missing = self._decide_beginning() if self._rank == 0 else [0]
            agreed = self._board.hear(0).get("agreed")
            if isinstance(agreed, dict) and agreed["nonces"][self._rank] == self._board.nonce:
                return agreed
            waited_s = time.monotonic() - began
            if waited_s > SAY_WHOM_AFTER_S and not said:
                said = True
                say(f"rank {self._rank} waits for {_listed(missing)} to call lease.resume()")
            if waited_s > BEGIN_PATIENCE_S:
                raise RuntimeError(
                    f"{_listed(missing)} of {self._size} did not call lease.resume(); where one"
                    " alone keeps the state of all, it says lease.setup(alone=True)"
                )
            time.sleep(POLL_S)
            self._board.say()

    def _decide_beginning(self) -> list[int]:
        """As rank 0, publish the common start once all ranks are known; return missing ranks."""
        heard = self._board.hear_all()
        missing = [rank for rank, facts in enumerate(heard) if "whole" not in facts]
        if not missing:
            common = {tuple(one) for one in heard[0]["whole"]}
            for facts in heard[1:]:
                common &= {tuple(one) for one in facts["whole"]}
            nonces = [facts["nonce"] for facts in heard]
            clear_unfinished(self._folder.path)
            agreed = {
                "nonces": nonces,
                "run": hashlib.sha256(" ".join(nonces).encode()).hexdigest()[:16],
                "from": list(max(common)) if common else None,
                "used": max(int(facts["used"]) for facts in heard),
            }
            self._board.say(agreed=agreed)
        return missing

    def _is_last(self, number: int) -> bool:
        """Return whether this store is the last, once its set is complete.

        Wait until the number of the last store is known.
        """
        self._wake()
        while not self._released:
            if self._highest is not None:
                if number >= self._highest:
                    self._queue(number, self._snapshot)
                if number <= self._highest:
                    return False
                if self._complete >= number:
                    return True
            self._changed.wait(POLL_S)
        return False

    def _tend(self) -> None:
        now = time.monotonic()
        self._report()
        self._fence.check()
        if self._run:
            self._listen(now)
            self._write_pending()
        if self.asked and time.monotonic() >= self._deadline():
            self._cut()

    def _pause_s(self) -> float:
        pause_s = super()._pause_s()
        return min(POLL_S, pause_s) if self.asked or self._is_flushing else pause_s

    def _queue(self, number: int, body: bytes | None) -> None:
        """Queue the snapshot of a store for the writing thread, once."""
        if body is not None and number not in self._queued:
            self._queued.add(number)
            self._pending[number] = body

    def _listen(self, now: float) -> None:
        """Publish this rank's position, and read the positions of the other ranks."""
        if self._rank == 0:
            self._conclude(now)
        heard = self._board.hear(0)
        with self._changed:
            if "asked_s" in heard and not self.asked:
                self._asked_at = now - float(heard["asked_s"])
            if self.asked and self._announced is None:
                self._announced, self._kept = self._stored, self._snapshot
            if heard.get("due", 0) != self._due:
                self._due = int(heard["due"])
                if self._stored == self._due:
                    self._queue(self._due, self._snapshot)
            self._complete = max(self._complete, int(heard.get("complete", 0)))
            self._released = bool(heard.get("released") or heard.get("ended"))
            highest = heard.get("highest")
            if highest is not None and self._highest is None:
                self._highest = int(highest)
                if self._announced == self._highest:
                    self._queue(self._highest, self._kept)
                self._kept = None
            self._changed.notify_all()
        facts: dict[str, Any] = {"stored": self._stored}
        if self._asked_at is not None:
            facts.update(asked_s=now - self._asked_at, position=self._announced)
        self._board.say(**facts)

    def _conclude(self, now: float) -> None:
        """As rank 0, publish the conclusions from the facts of all ranks."""
        heard = self._board.hear_all()
        facts: dict[str, Any] = {}
        asked = [float(one["asked_s"]) for one in heard if "asked_s" in one]
        if asked and not self.asked:
            self._asked_at = now - max(asked)
        positions = [int(one["position"]) for one in heard if "position" in one]
        if len(positions) == self._size:
            facts["highest"] = max(positions)
        common = set(heard[0].get("written", ()))
        for one in heard[1:]:
            common &= set(one.get("written", ()))
        complete = max(common, default=0)
        facts["released"] = any(one.get("ended") for one in heard)
        if complete > self._complete:
            facts["complete"] = complete
            self._written_at = now
            self._ahead = 1
            prune(self._folder.path)
        elif not self.asked and now - self._written_at >= self._every_s:
            facts.update(self._name_due(now))
        self._board.say(**facts)

    def _name_due(self, now: float) -> dict[str, int]:
        """Return the number of the next store for all ranks, further ahead after a missed one."""
        if self._stored < self._due or now < self._due_again_at or self._stored == self._first:
            return {}
        if self._due > self._complete:
            self._ahead = min(MOST_AHEAD, 2 * self._ahead)
        self._due_again_at = now + min(self._every_s, 5 * TICK_S)
        rate = (self._stored - self._first) / max(now - self._begun_at, 1e-3)
        stores = max(LEAST_AHEAD, math.ceil(rate * AHEAD_S)) * self._ahead
        return {"due": self._stored + stores}

    def _write_pending(self) -> None:
        while self._pending:
            with self._changed:
                number = min(self._pending)
                body = self._pending[number]
            one = CheckpointSet(self.contract.lease, number, self._run, self._size)
            target = self._folder.path / one.file(self._rank)
            try:
                put_file(target, Checkpoint(one.lease, number, body), self._fence)
            except OSError as problem:
                # The last complete set stays, and the next tick tries again.
                if self._failure is None:
                    say(f"{UNWRITTEN}: {problem}")
                self._failure = problem
                return
            self._failure = None
            with self._changed:
                del self._pending[number]
            written = [*self._board.hear(self._rank).get("written", ()), number]
            self._board.say(written=written[-2 * KEEP :])

    def _cut(self) -> NoReturn:
        """Exit at the end of the grace: with 99 if the set of the last store is complete."""
        self._left = True
        code = CHECKPOINTED if self._is_safe() else NOT_WRITTEN
        say(f"lease {self.contract.lease} ends without its last step: {self._position()}")
        self._note_suspended()
        self._report()
        flush_stdio()
        os._exit(code)

    def _is_safe(self) -> bool:
        """Return whether all stores until the signal are complete, or none existed."""
        if self._highest is not None:
            return self._complete >= self._highest
        return self._snapshot is None

    def _position(self) -> str:
        if self._complete == self._first:
            what = "no checkpoint of this lease is complete"
        else:
            what = f"checkpoint {self._complete} of {self._size} ranks is complete"
        return f"rank {self._rank} stored {self._stored - self._first} times, {what}"

    def _at_exit(self) -> None:
        if self._forked:
            return
        self._report()
        if self._run and not self._left:
            self._board.say(ended=True)

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._pipe[1], b"\0")


def _required(read: T | None, newest: CheckpointSet) -> T:
    """Return the checkpoint that was read.

    Raise RuntimeError if its set is gone, as at a second `resume`.
    """
    if not read:
        raise RuntimeError(f"{newest.file(0)} is gone: call lease.resume() once, at the start")
    return read


def _listed(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}"
