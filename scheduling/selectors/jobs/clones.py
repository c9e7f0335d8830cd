"""What the form of a clone begins with: a free name, and how long its job lasts."""

from __future__ import annotations

import re
from itertools import count

from scheduling.models import Job, VirtualWork

# How many of a tenant's last jobs a clone's name is compared with.
RECENT = 1000
# A clone's name. A number alone is no sign of one: "resnet-50" is not the 50th "resnet".
_COPY = re.compile(r"(.+?)-copy(?:-([2-9]|[1-9][0-9]{1,5}))?")
NAME_MAX = 63


def free_job_name(tenant_id: int, name: str) -> str:
    """Return a clone's name that no recent job of the tenant has: of "run" it is "run-copy".

    Of that one, and where it is taken, "run-copy-2". It is usable as a name, so the original's is
    cut where it would be too long. One query, of the last `RECENT` jobs: names may repeat.
    """
    match = _COPY.fullmatch(name)
    stem, number = (match[1], int(match[2] or 1)) if match else (name, 0)
    recent = Job.objects.filter(tenant_id=tenant_id).order_by("-id")[:RECENT]
    taken = set(recent.values_list("name", flat=True))
    ends = ("-copy" if n == 1 else f"-copy-{n}" for n in count(number + 1))
    names = (f"{stem[: NAME_MAX - len(end)].rstrip('-')}{end}" for end in ends)
    return next(wanted for wanted in names if wanted not in taken)


def submitted_duration_us(job: Job) -> int | None:
    """How long its submitter said that the virtual executor shall run a job. One query.

    None if nobody said it. None for jobs of a trace too: a portal does not know their length.
    """
    if job.source == "trace":
        return None
    return VirtualWork.objects.filter(job=job).values_list("duration_us", flat=True).first()
