"""The cost of preemptions: the steps that a job repeated, according to its own output."""

import re
from itertools import pairwise
from typing import NamedTuple

from django.utils.translation import gettext as _

from portal.charts.figures import duration, plural, thousands
from portal.jobs.text.leases import preempted
from portal.jobs.text.output import output_lines
from scheduling.engine.executors.base import executor_traits
from scheduling.engine.executors.local_files import read_log
from scheduling.models import Job
from scheduling.selectors.jobs.tenant_jobs import JobStory, LeaseView

# The format in which the `lease` library of the client prints progress; see examples/train.py.
_STEP = re.compile(r"step (\d{1,15}) of \d{1,15}")
_RESUMED = re.compile(r"resumed at step (\d{1,15}) of (\d{1,15})")
# bytes read of an output's start and end
HEAD_BYTES, TAIL_BYTES = 4096, 16384
LOOKED_UP = 4  # number of preemptions whose outputs are read, newest first


class WorkLoss(NamedTuple):
    """The cost of a preemption: a text, and the seconds of repeated work; None if unknown."""

    text: str
    lost_s: float | None


NO_LOSS = WorkLoss("", None)


class _Resumed(NamedTuple):
    """The first step in a lease's output, and the total."""

    step: int
    total: int


def work_losses(story: JobStory) -> dict[int, WorkLoss]:
    """Return the cost of preemptions, by the lease that ended.

    A simulated job loses no work. For other jobs, only the last few preemptions have a cost. The
    outputs must contain the ended lease's last step and the next lease's first step.
    """
    job = story.job
    cut = {hold.lease.pk for hold in preempted(story)}
    if executor_traits(job.pool.executor).simulates:
        return dict.fromkeys(cut, WorkLoss(_("A simulated job loses no work"), 0.0))
    started = [hold for hold in story.holds if hold.lease.started_at is not None]
    pairs = [pair for pair in pairwise(started) if pair[0].lease.pk in cut][-LOOKED_UP:]
    # A lease between two preemptions belongs to both; read its output once.
    looked_up = {hold.lease.pk: hold for pair in pairs for hold in pair}
    begins = {pk: _resumed(job, hold) for pk, hold in looked_up.items()}
    losses = {}
    for before, after in pairs:
        begin = begins[after.lease.pk]
        if begin is not None:
            losses[before.lease.pk] = _lost(job, before, begins[before.lease.pk], begin)
    return losses


def _lost(job: Job, hold: LeaseView, began: _Resumed | None, after: _Resumed) -> WorkLoss:
    text = _("Resumed at step {step}").format(step=thousands(after.step))
    if after.total:
        text = _("Resumed at step {step} of {total}").format(
            step=thousands(after.step), total=thousands(after.total)
        )
    last = _last_step(job, hold)
    if last is None or hold.lease.ended_at is None or hold.lease.started_at is None:
        return WorkLoss(text, None)
    again = last - after.step
    if again <= 0:
        return WorkLoss(_("{resumed}: no work was lost").format(resumed=text), 0.0)
    done = last - (began.step if began else 0)
    held_s = (hold.lease.ended_at - hold.lease.started_at).total_seconds()
    lost_s = held_s * again / done if done > 0 else held_s
    cost = _("{resumed}: about {time} of work lost, {steps} repeated")
    values = {"time": duration(round(lost_s)), "steps": plural(again, "step")}
    return WorkLoss(cost.format(resumed=text, **values), lost_s)


def _resumed(job: Job, hold: LeaseView) -> _Resumed | None:
    head = read_log(job.pk, hold.lease.number, 0, HEAD_BYTES).data
    match = _RESUMED.search("\n".join(output_lines(head)))
    return _Resumed(int(match[1]), int(match[2])) if match else None


def _last_step(job: Job, hold: LeaseView) -> int | None:
    end = read_log(job.pk, hold.lease.number, -TAIL_BYTES, TAIL_BYTES)
    steps = _STEP.findall("\n".join(output_lines(end.data, from_start=end.offset == 0)))
    return int(steps[-1]) if steps else None
