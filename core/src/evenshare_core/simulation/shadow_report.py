"""Comparison of two schedulers on a watch, as Markdown for people and as CSV for programs."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from statistics import fmean

from evenshare_core.csv_cells import write_csv
from evenshare_core.domain.instants import from_us
from evenshare_core.domain.plurals import plural
from evenshare_core.simulation.report import ROWS, format_cell
from evenshare_core.simulation.shadow import JobCourse, ShadowSide, WatchedPool
from evenshare_core.simulation.workload_files import format_seconds
from evenshare_core.units import HOUR_US, SECOND_US

# Limits the table of jobs, because a longer page would not be read; the CSV file has all jobs.
MOST_ROWS = 500
COLUMNS = ("job", "tenant", "gpus", "ready_s", "work_s", "is_guessed")
SIDE_COLUMNS = ("started_s", "ended_s", "waited_s", "held_s", "yields", "yielded_s")
# Figures that are defined while jobs are still open.
_FIGURES = (
    "sharing_loss_jobs", "tenant_unfair_intervals", "tenant_deficit", "tenant_daily_deficit",
    "late_vs_fair_reference", "gpu_utilisation", "waste", "preemptions",
)  # fmt: skip # a table
UNKNOWN = """\
- Users would have behaved differently: users who wait less submit more. Users who see a queue
  choose another GPU type, a smaller gang or another time limit.
- Work of jobs that had not ended is estimated: the median run time of the tenant's jobs. Running
  jobs count by their time so far (Kaplan-Meier). Without such jobs it is the median of all
  jobs, or an hour. Jobs that ran longer take as long again. The time limit is the maximum.
- Work is the time that a job ran here. On another GPU type or on other nodes it may take more or
  less. A job that cannot checkpoint would lose its work when it is asked to yield.
- This scheduler also enforced features, licences, memory, reservations and limits per user. The run
  knows only GPUs, their type and when a job could start.
- Of the jobs from before the watch, only those still listed at its start are known. The run starts
  with them in place, and with GPU-time sums of 0 for all tenants.
- Nodes are always those of the last poll."""


def shadow_report(
    title: str, pool: WatchedPool, sides: Sequence[ShadowSide], remarks: Sequence[str] = ()
) -> str:
    """Return the report; the first side is the actual run. `remarks` are sentences on the watch."""
    parts = [
        [f"# {title}", "", _summary(pool), ""],
        [f"- {remark}" for remark in [*remarks, *_remarks(pool)]],
        ["", "## The whole", "", *_whole(sides)],
        ["", "## By tenant", "", *_by_tenant(pool, sides)],
        ["", "## Jobs", "", *_jobs(pool, sides)],
        ["", "## Asked to yield", "", *_yields(pool, sides)],
        ["", "## What this cannot know", "", UNKNOWN],
    ]
    return "\n".join(line for part in parts for line in part) + "\n"


def shadow_csv(pool: WatchedPool, sides: Sequence[ShadowSide]) -> str:
    """Return one line per job, with columns of each side: seconds since 1970, or durations."""
    names = [f"{side.title}_{name}" for side in sides for name in SIDE_COLUMNS]
    rows = []
    for key, job in pool.jobs.items():
        sim = pool.sims[key]
        cells = [
            *(job.name, job.tenant, job.gpus, format_seconds(job.ready_us)),
            *(format_seconds(sim.duration_us), int(key in pool.guessed)),
        ]
        for side in sides:
            cells += _cells(side.jobs[key])
        rows.append(tuple(cells))
    return write_csv((*COLUMNS, *names), rows)


def _cells(course: JobCourse) -> list[str | int | None]:
    instants = (course.started_us, course.ended_us, course.waited_us, course.held_us)
    started, ended, waited, held = (None if us is None else format_seconds(us) for us in instants)
    yielded = None if course.yielded_us is None else format_seconds(course.yielded_us)
    return [started, ended, waited, held, course.yields, yielded]


def _summary(pool: WatchedPool) -> str:
    watch = pool.watch
    gpus = sum(one.node.gpus for one in watch.nodes)
    tenants = {job.tenant for job in pool.jobs.values()}
    span = timedelta(seconds=(watch.until_us - watch.from_us) // SECOND_US)
    begin, end = (f"{from_us(us):%Y-%m-%d %H:%M:%S}" for us in (watch.from_us, watch.until_us))
    return (
        f"{plural(len(pool.jobs), 'job')} of {plural(len(tenants), 'tenant')} on"
        f" {plural(gpus, 'GPU')} of {plural(len(watch.nodes), 'node')}, from {begin} to {end} UTC"
        f" ({span}). Nothing was submitted, changed or cancelled."
    )


def _remarks(pool: WatchedPool) -> Iterator[str]:
    if pool.guessed:
        yield f"Jobs that had not ended, whose work is estimated: {len(pool.guessed):,}."
    if pool.left_out:
        some = ", ".join(pool.left_out[:10]) + ", ..." * (len(pool.left_out) > 10)
        yield (
            "Skipped jobs, which are not a gang of whole GPUs of one type on nodes that are up:"
            f" {len(pool.left_out):,} ({some})."
        )


def _whole(sides: Sequence[ShadowSide]) -> Iterator[str]:
    yield from _head(("", *(side.title for side in sides)))
    courses = [list(side.jobs.values()) for side in sides]
    started = [sum(one.started_us is not None for one in rows) for rows in courses]
    ended = [sum(one.ended_us is not None for one in rows) for rows in courses]
    waits = [[one.waited_us / SECOND_US for one in rows] for rows in courses]
    yield _row("jobs that started", (f"{count:,}" for count in started))
    yield _row("ended jobs", (f"{count:,}" for count in ended))
    mean = "mean wait until the first start, or until the end of the watch"
    yield _row(mean, (_length(fmean(rows)) if rows else "-" for rows in waits))
    yield _row("longest wait", (_length(max(rows)) if rows else "-" for rows in waits))
    hours = (sum(side.gpu_us.values()) / HOUR_US for side in sides)
    yield _row("GPU-hours held", (f"{count:,.2f}" for count in hours))
    figures = [side.figures.published() for side in sides]
    for name, label, unit in ROWS:
        if name in _FIGURES:
            yield _row(label, (format_cell(row[name], unit) for row in figures))


def _by_tenant(pool: WatchedPool, sides: Sequence[ShadowSide]) -> Iterator[str]:
    columns = [f"{what}, {side.title}" for what in ("mean wait", "GPU-hours") for side in sides]
    yield from _head(("tenant", "quota, GPUs", "jobs", *columns))
    for tenant, name in sorted(pool.tenants.items(), key=lambda row: row[1]):
        quota = sum(row.gpus for row in pool.quotas if row.tenant == tenant)
        keys = [key for key, sim in pool.sims.items() if sim.tenant == tenant]
        waits = ([side.jobs[key].waited_us / SECOND_US for key in keys] for side in sides)
        cells = [_length(fmean(rows)) if rows else "-" for rows in waits]
        cells += [f"{side.gpu_us[tenant] / HOUR_US:,.2f}" for side in sides]
        yield _row(name, (f"{quota:,}", f"{len(keys):,}", *cells))


def _jobs(pool: WatchedPool, sides: Sequence[ShadowSide]) -> Iterator[str]:
    columns = [f"{what}, {side.title}" for what in ("start", "wait") for side in sides]
    yield from _head(("job", "tenant", "GPUs", "ready", *columns))
    for key, job in [*pool.jobs.items()][:MOST_ROWS]:
        courses = [side.jobs[key] for side in sides]
        cells = [_instant(one.started_us) for one in courses]
        cells += [_length(one.waited_us / SECOND_US) for one in courses]
        yield _row(job.name, (job.tenant, str(job.gpus), _instant(job.ready_us), *cells))
    yield from _others(len(pool.jobs), "more job is", "more jobs are")


def _yields(pool: WatchedPool, sides: Sequence[ShadowSide]) -> Iterator[str]:
    asked = [
        (side.title, key, course)
        for side in sides
        for key, course in side.jobs.items()
        if course.yields
    ]
    if not asked:
        yield "No job would have been asked to checkpoint and leave its GPUs."
        return
    yield from _head(("policy", "job", "tenant", "GPUs", "first asked", "times"))
    for title, key, course in asked[:MOST_ROWS]:
        job = pool.jobs[key]
        cells = (job.name, job.tenant, str(job.gpus), _instant(course.yielded_us))
        yield _row(title, (*cells, str(course.yields)))
    yield from _others(len(asked), "more is", "more are")


def _others(rows: int, one: str, many: str) -> Iterator[str]:
    if rows > MOST_ROWS:
        yield f"\n{plural(rows - MOST_ROWS, one, many)} in the table of jobs (CSV)."


def _head(cells: Sequence[str]) -> Iterator[str]:
    yield "| " + " | ".join(cells) + " |"
    yield "|" + "---|" * len(cells)


def _row(label: str, cells: Iterator[str] | Sequence[str]) -> str:
    return "| " + " | ".join(_plain(cell) for cell in (label, *cells)) + " |"


def _plain(text: str) -> str:
    """Escape an external name for a cell, against broken tables and HTML tags."""
    return text.replace("|", "\\|").replace("<", "&lt;")


def _instant(at_us: int | None) -> str:
    return "-" if at_us is None else f"{from_us(at_us):%m-%d %H:%M:%S}"


def _length(seconds: float) -> str:
    return f"{seconds:,.0f} s"
