"""What a preemption cost a job, as far as its own output says: the steps it had to do again."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from portal.charts.figures import duration, plural, thousands
from portal.jobs.text.output import output_lines
from scheduling.engine.executors import executor_traits
from scheduling.engine.executors.local_files import WINDOW_BYTES, read_log
from scheduling.models import Job
from scheduling.selectors.jobs import JobStory, LeaseView

# How the command line's `lease` library has a program say where it is; see examples/train.py.
_STEP = re.compile(r"step (\d{1,15}) of (\d{1,15})")
_RESUMED = re.compile(r"resumed at step (\d{1,15}) of (\d{1,15})")
HEAD_BYTES = 4096
LOOKED_UP = 4  # ends of leases whose outputs are read, the last ones


@dataclass(frozen=True, slots=True)
class _Said:
    """What one lease's output says: the step it began with, the last one it did, of how many."""

    resumed: int | None
    last: int | None
    total: int | None


def loss_texts(story: JobStory) -> dict[int, str]:
    """Return what each of the last preemptions cost, by the lease that was ended.

    A simulated job goes on where it was. Of others it is known where their outputs say both how
    far one lease came and where the next one began; where they do not, nothing is returned.
    """
    job = story.job
    ended = [hold for hold in story.holds if hold.lease.started_at is not None]
    if executor_traits(job.pool.executor).simulates:
        text = "A simulated job loses no work: it goes on where it was"
        return {hold.lease.pk: text for hold in ended if hold.lease.ended_at is not None}
    texts = {}
    for before, after in list(pairwise(ended))[-LOOKED_UP:]:
        text = _lost(before, _said(job, before), _said(job, after))
        if text:
            texts[before.lease.pk] = text
    return texts


def _lost(hold: LeaseView, before: _Said, after: _Said) -> str:
    if after.resumed is None:
        return ""
    of = f" of {thousands(after.total)}" if after.total else ""
    text = f"Resumed at step {thousands(after.resumed)}{of}"
    if before.last is None or hold.lease.ended_at is None or hold.lease.started_at is None:
        return text
    again = before.last - after.resumed
    if again <= 0:
        return f"{text}: no work was lost"
    done = before.last - (before.resumed or 0)
    held_s = (hold.lease.ended_at - hold.lease.started_at).total_seconds()
    lost_s = held_s * again / done if done > 0 else held_s
    return f"{text}: about {duration(round(lost_s))} lost, {plural(again, 'step')} done again"


def _said(job: Job, hold: LeaseView) -> _Said:
    number = hold.lease.number
    head = "\n".join(output_lines(read_log(job.pk, number, 0, HEAD_BYTES).data))
    end = read_log(job.pk, number, -WINDOW_BYTES)
    tail = "\n".join(output_lines(end.data, from_start=end.offset == 0))
    resumed = _RESUMED.search(head)
    steps = _STEP.findall(tail)
    total = resumed[2] if resumed else steps[-1][1] if steps else None
    return _Said(
        resumed=int(resumed[1]) if resumed else None,
        last=int(steps[-1][0]) if steps else None,
        total=None if total is None else int(total),
    )
