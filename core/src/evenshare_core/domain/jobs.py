"""Jobs as a policy sees them: opaque ids, counts and times, never names or commands."""

from evenshare_core.domain.ids import JobId, ProfileId, TenantId
from evenshare_core.domain.values import Value

UNHEARD = "job {} is in the snapshot, but no ACTIVE change names it"


class Job(Value, frozen=True, array_like=True):
    """A training run that is pending or holds a lease.

    `gpus` is the gang: all at once or nothing. `gpu_types` are the accepted types (empty: any).
    `terms` counts the lease terms granted so far (0: never ran). `max_price_micro` is per GPU-hour;
    a term with borrowed GPUs above it is not granted. `estimate_us` is the expected work on the
    slowest type; `None` if unknown. `profile` is the job type (0: equally fast on every type).
    """

    id: JobId
    tenant: TenantId
    gpus: int
    submitted_us: int
    gpu_types: tuple[str, ...] = ()
    weight: int = 1
    terms: int = 0
    max_price_micro: int | None = None
    deadline_us: int | None = None
    estimate_us: int | None = None
    profile: ProfileId = 0


def arrival_order(job: Job) -> tuple[int, int]:
    """Return (submission, id), the last sort key in every order of jobs."""
    return (job.submitted_us, job.id)
