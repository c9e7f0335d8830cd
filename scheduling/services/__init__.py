"""What users do with jobs: submit, ask whether it would run, cancel. Each is one transaction."""

from scheduling.services.dry_run import DryRun, dry_run_job
from scheduling.services.jobs import cancel_job
from scheduling.services.spec import JobSpec, read_spec
from scheduling.services.submit import (
    BULK_MAX,
    PendingLimitError,
    submit_job,
    submit_jobs,
)

__all__ = [
    "BULK_MAX",
    "DryRun",
    "JobSpec",
    "PendingLimitError",
    "cancel_job",
    "dry_run_job",
    "read_spec",
    "submit_job",
    "submit_jobs",
]
