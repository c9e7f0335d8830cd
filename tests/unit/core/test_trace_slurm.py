"""Test jobs of sacct and SWF files: steps, arrays, runs, states, and missing data."""

from __future__ import annotations

import pytest

from evenshare_core.simulation.trace_reads import HeaderError
from tests.unit.core.trace_reading import DATA, Trace

HEADER = "JobID|Account|State|Submit|Start|End|ElapsedRaw|AllocTRES"


def row(text: str, header: str = HEADER, **mapping: str) -> Trace:
    return Trace(f"{header}\n{text}\n", mapping=mapping)


class TestSacctDump:
    TRACE = Trace.of("jobs_dump.txt")

    def test_reads_jobs(self) -> None:
        assert self.TRACE.columns.format == "sacct"
        assert self.TRACE.bad == []
        assert sorted(self.TRACE.summary()) == [
            ("slurm-101", "bio", 4, 0, 3600, 0),
            ("slurm-102_1", "bio", 1, 120, 30, 1),
            ("slurm-102_2", "bio", 2, 120, 60, 1),
            ("slurm-103", "chem", 16, 300, 100, 143),
            ("slurm-105", "chem", 2, 480, 600, 0),
            ("slurm-106", "chem", 2, 600, 50, 1),
            ("slurm-108", "eve", 1, 720, 60, 1),
        ]
        first = self.TRACE.jobs[0]
        assert first.extra == {"cpus": 8, "memory_mb": 64 * 1024}

    def test_counts_skipped_and_failed_lines(self) -> None:
        assert self.TRACE.sentences == [
            "1 line requests no GPU and is skipped (line 13)",
            "2 lines are of jobs that never ran and are skipped (first: line 7)",
            "2 lines are parts of jobs, such as steps, and are skipped (first: line 3)",
            "1 line is an earlier run of a requeued job and is skipped (line 10)",
            "3 jobs failed, and fail here too (first: line 5)",
            "1 job was cancelled, and fails here after the time that it ran (line 8)",
            "1 job had not ended, and fails here after the time that it had run (line 12)",
        ]

    def test_ignores_requeued_runs_and_steps(self) -> None:
        lines = (DATA / "jobs_dump.txt").read_text().splitlines(keepends=True)
        kept = [line for line in lines if "|REQUEUED|" not in line and ".batch" not in line]
        assert sorted(Trace("".join(kept)).summary()) == sorted(self.TRACE.summary())

    def test_accepts_trailing_bars(self) -> None:
        lines = (DATA / "jobs_dump.txt").read_text().splitlines()
        assert Trace("".join(f"{line}|\n" for line in lines)).summary() == self.TRACE.summary()

    def test_maps_users_to_tenants(self) -> None:
        trace = Trace.of("jobs_dump.txt", mapping={"User": "tenant"})
        assert {job.tenant for job in trace.jobs} == {"ann", "bob", "eve"}


class TestSacctLine:
    @pytest.mark.parametrize(
        ("elapsed", "seconds"), [("01:02:03", 3723), ("2-00:00:01", 172801), ("05:06", 306)]
    )
    def test_reads_elapsed_clock_time(self, elapsed: str, seconds: int) -> None:
        trace = row(
            f"7|b|COMPLETED|2024-01-01T00:00:00|{elapsed}|gres/gpu=1",
            "JobID|Account|State|Submit|Elapsed|ReqTRES",
        )
        assert trace.jobs[0].duration_us == seconds * 10**6

    def test_computes_length_from_start_and_end(self) -> None:
        header = "JobID|Account|State|Submit|Start|End|ReqTRES"
        begin = "7|b|COMPLETED|2024-01-01T00:00:00|2024-01-01T00:00:10"
        assert row(f"{begin}|2024-01-01T00:01:10|gres/gpu=1", header).summary()[0][4] == 60
        unknown = row(f"{begin}|Unknown|gres/gpu=1", header)
        assert unknown.sentences[0].startswith("1 line has no run time")

    def test_multiplies_gpus_per_node(self) -> None:
        header = "JobID|User|State|Submit|ElapsedRaw|NNodes|AllocGRES"
        line = "7|u|COMPLETED|2024-01-01T00:00:00|60|{}|{}"
        assert row(line.format(3, "gpu:a100:4"), header).jobs[0].gpus == 12
        assert row(line.format(1, "gres:gpu:2,lustre:1"), header).jobs[0].gpus == 2

    def test_repeated_id_without_requeue_is_another_job(self) -> None:
        line = "7|b|COMPLETED|2024-01-0{}T00:00:00|x|x|60|gres/gpu=1"
        trace = row(f"{line.format(1)}\n{line.format(2)}")
        assert len(trace.jobs) == 2
        assert trace.sentences == [
            "1 job has the id or name of an earlier one, and is kept (line 3)"
        ]

    def test_requeued_pending_job_is_skipped(self) -> None:
        begin = "7|b|{}|2024-01-01T00:00:00|"
        trace = row(
            f"{begin.format('REQUEUED')}x|x|60|gres/gpu=1\n"
            f"{begin.format('PENDING')}Unknown|Unknown|0|"
        )
        assert trace.jobs == []
        assert [sentence.partition(" and is")[0] for sentence in trace.sentences] == [
            "1 line is of a job that never ran",
            "1 line is an earlier run of a requeued job",
        ]

    @pytest.mark.parametrize(
        ("line", "field"),
        [
            ("7|b|COMPLETED|soon|x|x|60|gres/gpu=1", "submit"),
            ("7|b|COMPLETED|2024-01-01T00:00:00|x|x|long|gres/gpu=1", "duration"),
            ("7||COMPLETED|2024-01-01T00:00:00|x|x|60|gres/gpu=1", "tenant"),
            ("7|b|COMPLETED|2024-01-01T00:00:00|x|x|60|gres/gpu=1|a name with |", ""),
            ("|b|COMPLETED|2024-01-01T00:00:00|x|x|60|gres/gpu=1", "name"),
            ("7|b|COMPLETED|2024-01-01T00:00:00|x|x|60|gres/gpu=999999", "gpus"),
        ],
    )
    def test_bad_line_names_field(self, line: str, field: str) -> None:
        good = "8|b|COMPLETED|2024-01-01T00:00:00|x|x|60|gres/gpu=1"
        trace = row(f"{line}\n{good}")
        assert [(one.line, one.field) for one in trace.bad] == [(2, field)]
        assert [job.name for job in trace.jobs] == ["slurm-8"]


class TestSacctHeader:
    @pytest.mark.parametrize(
        ("header", "says"),
        [
            ("JobID|JobName|Partition|Account|AllocCPUS|State|ExitCode", "no column for gpus (All"),
            ("JobID           JobName  Partition    Account  AllocCPUS", "run sacct -P --allusers"),
        ],
    )
    def test_error_shows_sacct_command(self, header: str, says: str) -> None:
        with pytest.raises(HeaderError) as raised:
            Trace(f"{header}\n")
        assert says in str(raised.value)


class TestStandardWorkloadFormat:
    def test_reads_jobs(self) -> None:
        trace = Trace.of("two_jobs.swf")
        assert trace.columns.format == "swf"
        assert trace.summary() == [("swf-1", "group-1", 16, 0, 120, 0)]
        assert trace.sentences == ["1 line is of a job that never ran and is skipped (line 5)"]

    def test_reads_partial_jobs_states_and_unknown_values(self) -> None:
        trace = Trace.of("partial_jobs.swf")
        assert trace.summary() == [
            ("swf-7", "user-3", 4, 0, 100, 0),
            ("swf-8", "group-2", 2, 10, 60, 1),
            ("swf-9", "group-2", 1, 20, 30, 143),
            ("swf-9", "group-2", 2, 25, 30, 0),
        ]
        assert [(one.line, one.field) for one in trace.bad] == [(10, "gpus")]
        assert [sentence.partition(" (")[0] for sentence in trace.sentences] == [
            "1 line requests no GPU and is skipped",
            "1 line has no run time and is skipped",
            "1 line is a part of a job, such as a step, and is skipped",
            "1 job failed, and fails here too",
            "1 job was cancelled, and fails here after the time that it ran",
            "1 job has the id or name of an earlier one, and is kept",
        ]

    def test_accepts_comments_in_other_encoding(self) -> None:
        content = "; Université\n".encode("latin-1") + (DATA / "two_jobs.swf").read_bytes()
        assert Trace(content).bad == []

    def test_accepts_file_without_comments(self) -> None:
        lines = (DATA / "two_jobs.swf").read_text().splitlines(keepends=True)
        content = "".join(line for line in lines if not line.startswith(";"))
        assert len(Trace(content).jobs) == 1

    def test_maps_users_and_requested_times(self) -> None:
        mapping = {"user": "tenant", "requested_time": "estimate_s"}
        (job,) = Trace.of("two_jobs.swf", mapping=mapping).jobs
        assert (job.tenant, job.extra) == ("user-3", {"estimate_s": 300})
