"""What users do with jobs: submit, ask whether it would run, cancel. Each is one transaction."""

from scheduling.services.cancel import job_cancel
from scheduling.services.dry_run import DryRun, job_dry_run
from scheduling.services.fields import FieldError, SpecError
from scheduling.services.spec import JobSpec, spec_read
from scheduling.services.submit import (
    BULK_MAX,
    PendingLimitError,
    job_submit,
    jobs_submit_bulk,
)

__all__ = [
    "BULK_MAX",
    "DryRun",
    "FieldError",
    "JobSpec",
    "PendingLimitError",
    "SpecError",
    "job_cancel",
    "job_dry_run",
    "job_submit",
    "jobs_submit_bulk",
    "spec_read",
]
