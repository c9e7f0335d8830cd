"""A workload as a CSV file in the `own` format, from which a run can be repeated."""

from evenshare_core.csv_cells import write_csv
from evenshare_core.domain.utilities import utility_text
from evenshare_core.simulation.workloads import SimJob, Workload
from evenshare_core.units import SECOND_US

COLUMNS = (
    *("name", "tenant", "gpus", "submit_s", "duration_s", "weight", "gpu_types", "max_price"),
    *("estimate_s", "exit_code", "model", "deadline_s", "values", "cancel_s"),
    *("cold_s", "checkpoint_s", "cpus", "memory_mb", "utility"),
)


def workload_csv(workload: Workload, *, all_estimates: bool = False) -> str:
    """Return a CSV with the jobs in the order of their ids; reading the file gives equal jobs.

    An estimate, in whole seconds, is written only if it differs from the true duration. With
    `all_estimates` every estimate is written, to distinguish jobs without an estimate.
    """
    return write_csv(
        COLUMNS,
        (
            _cells(job, workload.tenants[job.tenant], all_estimates=all_estimates)
            for job in workload.jobs
        ),
    )


def _cells(job: SimJob, tenant: str, *, all_estimates: bool) -> list[str]:
    estimate_us, price = job.estimate_us, job.max_price_micro
    has_estimate = all_estimates or estimate_us != job.duration_us
    instants = [until_us for until_us, _ in job.values]
    if not instants and job.deadline_us is not None:
        instants = [job.deadline_us]
    return [
        *(job.name, tenant, str(job.gpus)),
        *(format_seconds(job.submitted_us), format_seconds(job.duration_us), str(job.weight)),
        " ".join(job.gpu_types),
        "" if price is None else format_seconds(price),  # a credit also has six decimals
        str(estimate_us // SECOND_US) if has_estimate and estimate_us is not None else "",
        "1" if job.failed else "",
        job.model,
        "-".join(format_seconds(at_us - job.submitted_us) for at_us in instants),
        "-".join(str(value) for _, value in job.values),
        "" if job.cancel_us is None else format_seconds(job.cancel_us - job.submitted_us),
        "" if job.cold_us is None else format_seconds(job.cold_us),
        "" if job.checkpoint_us is None else format_seconds(job.checkpoint_us),
        *(str(count) if count else "" for count in (job.cpus, job.memory_mb)),
        "" if job.utility is None else utility_text(job.utility),
    ]


def format_seconds(value_us: int) -> str:
    """Return microseconds from 0 on as seconds, exactly."""
    whole, rest = divmod(value_us, SECOND_US)
    return f"{whole}.{rest:06}".rstrip("0").rstrip(".")
