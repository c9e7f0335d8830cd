"""The files of a job's folder, for those who may read its log."""

from datetime import UTC, datetime

from scheduling.engine.executors.base import executor_traits
from scheduling.engine.executors.job_files import FileWindow, list_files, read_file
from scheduling.models import Job
from tenants.answers import Answer

_LATEST_S = datetime(2200, 1, 1, tzinfo=UTC).timestamp()


class JobFile(Answer, frozen=True):
    """A file: its path below the job's folder, and the time of its last change (wall time)."""

    COMPONENT = "JobFileRow"

    path: str
    bytes: int
    modified_at: datetime | None  # None if the job set an absurd time


class JobFiles(Answer, frozen=True, kw_only=True):
    """The files that a job's program wrote into its folder, upper folders first.

    `kept`: whether the portal can read the folders of this pool's jobs. `cut`: there may be more
    files than listed.
    """

    COMPONENT = "JobFilesAnswer"

    kept: bool
    files: tuple[JobFile, ...] = ()
    cut: bool = False


def keeps_files(job: Job) -> bool:
    """Return whether the portal can read the folders of this pool's jobs."""
    return executor_traits(job.pool.executor).keeps_files


def job_files(job: Job) -> JobFiles:
    """Return a job's files, at most 1,000."""
    if not keeps_files(job):
        return JobFiles(kept=False)
    tree = list_files(job.pk)
    rows = tuple(JobFile(one.path, one.size, _instant(one.modified_s)) for one in tree.files)
    return JobFiles(kept=True, files=rows, cut=tree.is_cut)


def read_job_file(job: Job, path: str, offset: int, limit: int) -> FileWindow | None:
    """Return a window of a job's file (`read_file`), or None if there is no such file."""
    return read_file(job.pk, path, offset, limit) if keeps_files(job) else None


def _instant(seconds: float) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if 0 <= seconds < _LATEST_S else None
