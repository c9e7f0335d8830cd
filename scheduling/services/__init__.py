"""Changes by users to jobs, pools, nodes, sharing and simulations, and their previews."""

from scheduling.services.dry_run import DryRun, dry_run_job
from scheduling.services.job_requests import read_job_request
from scheduling.services.jobs import cancel_job
from scheduling.services.submit import (
    BULK_MAX,
    PendingLimitError,
    submit_job,
    submit_jobs,
)

__all__ = [
    "BULK_MAX",
    "DryRun",
    "PendingLimitError",
    "cancel_job",
    "dry_run_job",
    "read_job_request",
    "submit_job",
    "submit_jobs",
]
