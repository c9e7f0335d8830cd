"""Initial values for the form that clones a job: a free name, and the job's duration."""

import re
from itertools import count

from scheduling.models import Job, VirtualWork

# The number of the tenant's newest jobs whose names a clone must not have.
RECENT = 1000
# Matches a clone's name. Only a number at its end is not enough: "resnet-50" is no clone.
_COPY = re.compile(r"(.+?)-copy(?:-([2-9]|[1-9][0-9]{1,5}))?")
NAME_MAX = 63


def free_job_name(tenant_id: int, name: str) -> str:
    """Return a clone's name that no recent job of the tenant has: "run-copy" for "run".

    If that name is taken, or the original is "run-copy", it is "run-copy-2". The original's name is
    cut if the result would be longer than `NAME_MAX`. A single query over the last `RECENT` jobs,
    because names need not be unique.
    """
    match = _COPY.fullmatch(name)
    stem, number = (match[1], int(match[2] or 1)) if match else (name, 0)
    recent = Job.objects.filter(tenant_id=tenant_id).order_by("-id")[:RECENT]
    taken = set(recent.values_list("name", flat=True))
    ends = ("-copy" if n == 1 else f"-copy-{n}" for n in count(number + 1))
    names = (f"{stem[: NAME_MAX - len(end)].rstrip('-')}{end}" for end in ends)
    return next(wanted for wanted in names if wanted not in taken)


def submitted_duration_us(job: Job) -> int | None:
    """Return the duration that the submitter gave for the virtual executor, in us. A single query.

    Return None if no duration was given. Also return None for jobs of a trace, whose true duration
    the submitter would not know.
    """
    if job.source == "trace":
        return None
    return VirtualWork.objects.filter(job=job).values_list("duration_us", flat=True).first()
