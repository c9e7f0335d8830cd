"""Benchmark of reading 82,247 jobs, as many as in Philly's log, in each format of `simulate`."""

import csv
import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from evenshare_core.cli.collector import rare_collections
from evenshare_core.simulation.trace_formats import trace_lines
from evenshare_core.simulation.workloads import read_workload

JOBS, SEED = 82_247, 1
GOAL_S, GOAL_MB = 5.0, 150
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
PLAIN = "plain"
SACCT_HEADER = "JobID|Account|User|State|Submit|Start|End|ElapsedRaw|NNodes|ReqTRES|AllocTRES"


class Drawn(NamedTuple):
    """A job, to be written in each format."""

    number: int
    tenant: str
    gpus: int
    at: datetime
    length_s: int
    failed: bool

    def instant(self, after_s: int = 0) -> str:
        """Return the time of submission, or a time `after_s` later."""
        return f"{self.at + timedelta(seconds=after_s):%Y-%m-%d %H:%M:%S}"


def drawn() -> Iterator[Drawn]:
    """Yield jobs of 15 tenants over three months."""
    rng = random.Random(SEED)  # noqa: S311 - no secret
    for number in range(JOBS):
        at = BEGIN + timedelta(seconds=number * 100 + rng.randrange(100))
        gpus = rng.choice((1, 1, 1, 2, 4, 8, 16))
        length_s, failed = rng.randrange(1, 400_000), rng.random() < 0.2
        yield Drawn(number, f"vc{rng.randrange(15):02}", gpus, at, length_s, failed)


def philly(job: Drawn) -> str:
    """Return a line of the CSV."""
    at_s = int((job.at - BEGIN).total_seconds())
    return f"{job.number},{job.tenant},{at_s},{job.instant()},{job.length_s},{job.gpus}"


def helios(job: Drawn) -> str:
    """Return a line as pandas writes it."""
    state = "FAILED" if job.failed else "COMPLETED"
    start, end = job.instant(10), job.instant(10 + job.length_s)
    rest = f"{state},{job.instant()},{start},{end},{job.length_s}.0,10.0"
    return f"{job.number},u1,{job.tenant},{job.gpus}.0,32.0,1.0,{rest}"


def sacct(job: Drawn) -> str:
    """Return the lines of a job and of its two steps."""
    state = "FAILED" if job.failed else "COMPLETED"
    times = f"{job.instant()}|{job.instant(10)}|{job.instant(10 + job.length_s)}|{job.length_s}"
    times = times.replace(" ", "T")
    tres = f"billing=8,cpu=8,gres/gpu:a100={job.gpus},gres/gpu={job.gpus},mem=64G,node=1"
    lines = [f"{job.number}|{job.tenant}|u1|{state}|{times}|1|{tres}|{tres}"]
    lines += [
        f"{job.number}.{step}|{job.tenant}||{state}|{times}|1||{tres}" for step in ("batch", "0")
    ]
    return "\n".join(lines)


def swf(job: Drawn) -> str:
    """Return a line of 18 numbers, in the Standard Workload Format."""
    at_s = int((job.at - BEGIN).total_seconds())
    status, group = int(not job.failed), int(job.tenant[2:])
    return (
        f"{job.number} {at_s} 10 {job.length_s} {job.gpus} -1 -1 {job.gpus} -1 -1 {status}"
        f" 1 {group} -1 -1 -1 -1 -1"
    )


def philly_json(job: Drawn) -> str:
    """Return an entry of the JSON list, on several lines, with the separator before it."""
    detail = [{"ip": "m1", "gpus": [f"gpu{n}" for n in range(job.gpus)]}]
    attempt = {"start_time": job.instant(10), "end_time": job.instant(10 + job.length_s)}
    value = {
        "status": "Failed" if job.failed else "Pass", "vc": job.tenant, "jobid": f"j{job.number}",
        "attempts": [attempt | {"detail": detail}], "submitted_time": job.instant(), "user": "u1",
    }  # fmt: skip # a table
    return ("," if job.number else "[") + json.dumps(value, indent=4)


HELIOS_HEADER = (
    "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"
)
FORMATS = {
    "philly": ("job_id,tenant,submit_time_s,submit_ts,duration_s,gpus", philly, ""),
    "helios": (HELIOS_HEADER, helios, ""),
    "sacct": (SACCT_HEADER, sacct, ""),
    "swf": ("; MaxProcs: 2000", swf, ""),
    "philly_json": ("", philly_json, "]\n"),
}


def make(path: Path, form: str) -> None:
    header, line, end = FORMATS[form]
    with path.open("w", encoding="utf-8") as file:
        file.write(f"{header}\n" if header else "")
        file.writelines(f"{line(job)}\n" for job in drawn())
        file.write(end)


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def load(path: Path, form: str) -> None:
    """Read a file; print the number of jobs, CPU seconds, and the peak memory before and after."""
    before_mb, began = peak_mb(), time.process_time()
    if form == PLAIN:
        with path.open(encoding="utf-8", newline="") as text:
            jobs = [
                (row["job_id"], row["tenant"], int(row["gpus"]), float(row["duration_s"]))
                for row in csv.DictReader(text)
            ]
        count = len(jobs)
    else:
        with path.open("rb") as file, rare_collections():
            count = len(read_workload(trace_lines(file)[1]).jobs)
    print(count, time.process_time() - began, before_mb, peak_mb())


def measured(path: Path, form: str) -> tuple[int, float, float, float]:
    """Return the output of `load` in a new process."""
    command = [sys.executable, "-m", "benchmarks.load_traces", form, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    count, cpu_s, before_mb, after_mb = done.stdout.split()
    return int(count), float(cpu_s), float(before_mb), float(after_mb)


def main() -> int:
    """Measure each format; return 1 if the run misses a goal."""
    print(f"{JOBS:,} jobs; CPU time, and peak of memory of a process that reads the file")
    missed = False
    with TemporaryDirectory() as folder:
        for form in FORMATS:
            path = Path(folder) / form
            make(path, form)
            size_mb = path.stat().st_size / 1e6
            count, cpu_s, before_mb, after_mb = measured(path, form)
            assert count == JOBS  # noqa: S101 - else another file was measured
            missed |= cpu_s > GOAL_S or after_mb > GOAL_MB
            plain = ""
            if form == "philly":
                plain_s = measured(path, PLAIN)[1]
                plain = f"  csv.DictReader {plain_s:.2f} s, {cpu_s / plain_s:.1f}x"
            print(
                f"{form:<12} {size_mb:6.1f} MB  {cpu_s:5.2f} s  {before_mb:4.0f} MB before,"
                f" {after_mb:4.0f} MB at most{plain}"
            )
    print(f"goal: at most {GOAL_S:g} s and {GOAL_MB} MB{'; missed' if missed else ''}")
    return int(missed)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        load(Path(sys.argv[2]), sys.argv[1])
    else:
        sys.exit(main())
