"""A workload as a small file: the `own` format, from which the same run can be repeated."""

from __future__ import annotations

import csv
import io

from evenshare_core.simulation.workloads import SimJob, Workload
from evenshare_core.units import SECOND_US

COLUMNS = (
    *("name", "tenant", "gpus", "submit_s", "duration_s", "weight", "gpu_types", "max_price"),
    *("estimate_s", "exit_code", "model", "deadline_s", "values", "cancel_s"),
    *("cold_s", "checkpoint_s"),
)


def workload_csv(workload: Workload) -> str:
    """Return the jobs in the order of their ids; read again, they are the same jobs.

    An estimate is told where it is not the true duration, in whole seconds.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for job in workload.jobs:
        writer.writerow(_cells(job, workload.tenants[job.tenant]))
    return out.getvalue()


def _cells(job: SimJob, tenant: str) -> list[str]:
    estimate_us, price = job.estimate_us, job.max_price_micro
    has_estimate = estimate_us is not None and estimate_us != job.duration_us
    instants = [until_us for until_us, _ in job.values]
    if not instants and job.deadline_us is not None:
        instants = [job.deadline_us]
    return [
        *(job.name, tenant, str(job.gpus)),
        *(_seconds(job.submitted_us), _seconds(job.duration_us), str(job.weight)),
        " ".join(job.gpu_types),
        "" if price is None else _seconds(price),  # a credit has six places too
        str(estimate_us // SECOND_US) if has_estimate and estimate_us is not None else "",
        "1" if job.failed else "",
        job.model,
        "-".join(_seconds(at_us - job.submitted_us) for at_us in instants),
        "-".join(str(value) for _, value in job.values),
        "" if job.cancel_us is None else _seconds(job.cancel_us - job.submitted_us),
        "" if job.cold_us is None else _seconds(job.cold_us),
        "" if job.checkpoint_us is None else _seconds(job.checkpoint_us),
    ]


def _seconds(value_us: int) -> str:
    whole, rest = divmod(value_us, SECOND_US)
    return f"{whole}.{rest:06}".rstrip("0").rstrip(".")
