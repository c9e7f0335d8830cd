"""Test real trace files: messages about unusual lines and unreadable files."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from evenshare_core.simulation.trace_formats import FORMATS, FORMS
from evenshare_core.simulation.trace_reads import HeaderError, Remark
from tests.unit.core.trace_reading import DATA, Trace

OWN = "name,tenant,gpus,submit_s,duration_s\n"
STATES = "name,tenant,gpus,submit_s,duration_s,state\n"
GOOD = {
    "tenant": "a", "gpus": "1", "submit": "0", "duration": "60", "set": "x", "name": "1",
    "deadline_s": "", "values": "",
}  # fmt: skip


class TestLineWithoutGpus:
    @pytest.mark.parametrize("none", ["0", "0.0", "0.000000000000"])
    @pytest.mark.parametrize("form", [form for form in FORMATS if form != "chronus"])
    def test_is_skipped_and_counted_in_every_format(self, form: str, none: str) -> None:
        columns = FORMATS[form]
        cells = [{**GOOD, "gpus": none}.get(field, "") for field in columns.values()]
        trace = Trace(f"{','.join(columns)}\n{','.join(cells)}\n", form=form)
        assert (trace.jobs, trace.bad) == ([], [])
        assert trace.sentences == ["1 line requests no GPU and is skipped (line 2)"]

    def test_is_recognized_in_pandas_output(self) -> None:
        trace = Trace.of("helios_pandas.csv")
        assert trace.summary() == [("helios-2", "vcA", 1, 0, 3600, 0)]
        assert trace.sentences == ["1 line requests no GPU and is skipped (line 2)"]


class TestFractionalGpus:
    def test_are_rounded_up_and_counted(self) -> None:
        trace = Trace(OWN + "a,t,0.25,0,1\nb,t,1.5,0,1\nc,t,2.0,0,1\n")
        assert [job.gpus for job in trace.jobs] == [1, 2, 2]
        assert trace.sentences == [
            "2 jobs request a fraction of a GPU, which is rounded up (first: line 2)"
        ]


class TestDuplicate:
    def test_is_reported_and_kept(self) -> None:
        trace = Trace(OWN + "a,t,1,0,1\na,t,1,0,1\na,t,2,0,1\nb,t,1,0,1\n")
        assert [job.name for job in trace.jobs] == ["a", "a", "a", "b"]
        assert trace.sentences == [
            "1 job has the id or name of an earlier one, and is kept (line 4)",
            "1 line equals an earlier one, and is kept as another job (line 3)",
        ]

    def test_is_found_by_its_line_without_names(self) -> None:
        trace = Trace("tenant,gpus,submit_s,duration_s\nt,1,0,1\nt,2,0,1\nt,1,0,1\n")
        assert [one.remarks for one in trace.jobs] == [(), (), (Remark.DOUBLED_LINE,)]


class TestEndState:
    @pytest.mark.parametrize(
        ("state", "code", "remark"),
        [
            ("COMPLETED", 0, None),
            ("Pass", 0, None),
            ("", 0, None),
            ("FAILED", 1, Remark.FAILED),
            ("NODE_FAIL", 1, Remark.FAILED),
            ("OUT_OF_ME+", 1, Remark.FAILED),
            ("TIMEOUT", 1, Remark.FAILED),
            ("CANCELLED", 143, Remark.CANCELLED),
            ("CANCELLED by 1000", 143, Remark.CANCELLED),
            ("CANCELLED+", 143, Remark.CANCELLED),
            ("Killed", 143, Remark.CANCELLED),
            ("RUNNING", 1, Remark.UNFINISHED),
            ("PENDING", 1, Remark.UNFINISHED),
            ("odd", 0, Remark.UNKNOWN_STATE),
        ],
    )
    def test_determines_exit_code_and_remark(
        self, state: str, code: int, remark: Remark | None
    ) -> None:
        (job,) = Trace(STATES + f"a,t,1,0,1,{state}\n").jobs
        assert job.extra.get("exit_code", 0) == code
        assert job.remarks == (() if remark is None else (remark,))


class TestUnreadableFile:
    @pytest.mark.parametrize(
        ("content", "says"),
        [
            ((OWN + "a,t,1,0,1\n").encode("utf-16"), "encoding is UTF-16, not UTF-8; convert"),
            ((OWN + "a,t,1,0,1\n").encode("utf-16-le"), "encoding is UTF-16"),
            ((OWN + "a,t,1,0,1\n").encode("utf-32"), "encoding is UTF-32"),
            ("équipe,tenant\n".encode("latin-1"), "is not UTF-8; it may be Latin-1"),
            ("équipe €,tenant\n".encode("cp1252"), "is not UTF-8; it may be Windows-1252"),
            (OWN.replace(",", ";").encode(), "semicolons separate the cells"),
            (OWN.replace(",", "\t").encode(), "tabs separate the cells"),
            (OWN.replace(",", "|").encode(), "vertical bars separate the cells"),
            (OWN.replace(",", "  ").encode(), "spaces separate the words"),
            (OWN.replace("\n", "\ra,t,1,0,1\r").encode(), "lines end with carriage returns only"),
            (b'"name" x,tenant\n', "the first line is not CSV"),
            (b'[["a", "b"]]\n', "no column for tenant, gpus, submit, duration; name it with --map"),
            (b"x," * 9999 + b"y\n", "repeated columns: x"),
            (",".join(f"c{n}" for n in range(9999)).encode(), "c10, c11, and 9,987 more)"),
            (b'"name,tenant\n', "the first line is not CSV"),
            (b"PK\x03\x04rest", "is a ZIP archive or a spreadsheet; save the jobs as CSV"),
            (b"\xfd7zXZ\x00rest", "is packed with xz; unpack it"),
            (b"BZh91AY", "is packed with bzip2"),
            (b"\x28\xb5\x2f\xfdrest", "is packed with zstd"),
            (b"PAR1rest", "is Parquet"),
            (b"[]", "is JSON without jobs"),
            (b'{"jobs": []}', "its first job has no jobid, vc, submitted_time, attempts"),
            (b'[{"jobid": 1', "starts as JSON, but is not JSON from here on"),
            (b"", "the first line cannot be read: empty"),
        ],
    )
    def test_raises_one_line_error(self, content: bytes, says: str) -> None:
        for packed in (content, gzip.compress(content)):
            with pytest.raises(HeaderError) as raised:
                Trace(packed)
            assert says in str(raised.value)
            assert "\n" not in str(raised.value)

    @pytest.mark.parametrize("form", FORMS)
    @pytest.mark.parametrize("name", ["helios_like.csv", "philly_log.json", "two_jobs.swf"])
    def test_wrong_format_raises_header_error_or_reports_lines(self, form: str, name: str) -> None:
        try:
            trace = Trace((DATA / name).read_bytes(), form=form)
        except HeaderError:
            return
        assert trace.bad or trace.jobs


class TestMapping:
    def test_is_rejected_for_format_without_columns(self) -> None:
        with pytest.raises(HeaderError, match="JSON has no columns to map"):
            Trace.of("philly_log.json", mapping={"vc": "tenant"})

    def test_reads_utility_column(self) -> None:
        header = OWN.strip() + ",utility\n"
        (job,) = Trace(header + "a,t,1,0,1,linear k=-2 g=100\n").jobs
        assert "utility" in job.extra


class TestPhillyLog:
    def test_reads_attempts_of_jobs(self) -> None:
        trace = Trace.of("philly_log.json")
        assert trace.columns.format == "philly_json"
        assert trace.summary() == [("application_1_1", "vc1", 2, 0, 74, 1)]
        assert trace.sentences == [
            "1 line is of a job that never ran and is skipped (line 1)",
            "1 job had not ended, and fails here after the time that it had run (line 1)",
        ]

    def job(self, **fields: Any) -> dict[str, Any]:
        gpus = [{"ip": "m1", "gpus": ["gpu0"]}, {"ip": "m2", "gpus": ["gpu0", "gpu1"]}]
        times = {"start_time": "2017-10-07 01:00:00", "end_time": "2017-10-07 01:01:00"}
        return {
            "status": "Pass", "vc": "v", "jobid": "j", "user": "u",
            "submitted_time": "2017-10-07 00:00:00", "attempts": [{**times, "detail": gpus}],
        } | fields  # fmt: skip

    def test_reports_line_numbers_in_indented_json(self) -> None:
        jobs = [
            self.job(jobid="wide"),
            self.job(jobid=""),
            self.job(jobid="none", attempts=[{"start_time": "2017-10-07 01:00:00", "detail": []}]),
            self.job(jobid="killed", status="Killed"),
            self.job(jobid="killed", status="Killed"),
            "no job",
        ]
        trace = Trace(json.dumps(jobs, indent=4))
        assert [(job.name, job.gpus, job.duration_us) for job in trace.jobs] == [
            ("wide", 3, 60_000_000), ("killed", 3, 60_000_000), ("killed", 3, 60_000_000),
        ]  # fmt: skip
        lines = json.dumps(jobs, indent=4).splitlines()
        begins = [place for place, line in enumerate(lines, 1) if line.startswith("    {")]
        assert [job.line for job in trace.jobs] == [begins[0], begins[3], begins[4]]
        assert [(one.field, one.line) for one in trace.bad] == [
            ("jobid", begins[1]),
            ("", len(lines) - 1),
        ]
        sentences = [sentence.partition(" (")[0] for sentence in trace.sentences]
        assert sentences == [
            "1 line requests no GPU and is skipped",
            "2 jobs were cancelled, and fail here after the time that they ran",
            "1 line equals an earlier one, and is kept as another job",
        ]

    def test_result_is_independent_of_chunk_size(self, monkeypatch: pytest.MonkeyPatch) -> None:
        content = json.dumps([self.job(jobid=f"é{n}") for n in range(30)], ensure_ascii=False)
        whole = Trace(content).summary()
        monkeypatch.setattr("evenshare_core.simulation.trace_json.CHUNK", 7)
        assert Trace(content).summary() == whole

    def test_truncated_file_keeps_complete_jobs(self) -> None:
        trace = Trace(json.dumps([self.job()] * 3)[:-40])
        assert len(trace.jobs) == 2
        assert "is not JSON from here on" in trace.bad[0].reason
