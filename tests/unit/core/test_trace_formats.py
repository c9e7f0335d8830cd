"""Test the parsing of trace lines; a bad line does not affect other lines."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenshare_core.simulation.trace_formats import trace_lines
from evenshare_core.simulation.trace_reads import (
    BadLine,
    Columns,
    HeaderError,
    LeftOut,
    Read,
    TraceLine,
)
from evenshare_core.simulation.trace_text import LINE_MAX

DATA = Path(__file__).resolve().parents[2] / "data"
OWN = b"name,tenant,gpus,submit_s,duration_s\n"
GOOD = b"a,north,1,0,60\n"


def read(
    content: bytes, *, form: str = "auto", mapping: dict[str, str] | None = None
) -> tuple[Columns, list[Read]]:
    columns, lines = trace_lines(io.BytesIO(content), form=form, mapping=mapping)
    return columns, list(lines)


def bad(content: bytes) -> list[tuple[int, str]]:
    return [(one.line, one.field) for one in read(content)[1] if isinstance(one, BadLine)]


class TestPhilly:
    def test_is_recognized_by_header_and_decompressed(self) -> None:
        columns, lines = read((DATA / "philly_slice.csv.gz").read_bytes())
        assert columns.format == "philly"
        assert len(lines) == 60
        assert lines[2] == TraceLine(
            4, "philly-17316", "ee9e8c", 8, 1072_000_000, 159721_000_000, {}
        )

    def test_uncompressed_file_reads_the_same(self) -> None:
        packed = (DATA / "philly_slice.csv.gz").read_bytes()
        assert read(gzip.decompress(packed)) == read(packed)


class TestHelios:
    LINES = read((DATA / "helios_like.csv").read_bytes())

    def test_uses_virtual_cluster_as_tenant(self) -> None:
        columns, lines = self.LINES
        assert columns.format == "helios"
        jobs = [line for line in lines if isinstance(line, TraceLine)]
        assert [(job.name, job.tenant, job.gpus) for job in jobs] == [
            ("helios-1", "vcEwI", 1),
            ("helios-3", "vcWoR", 8),
            ("helios-4", "vcWoR", 16),
        ]
        assert [job.submit_us - jobs[0].submit_us for job in jobs] == [0, 105_000_000, 195_000_000]

    def test_skips_jobs_without_gpus(self) -> None:
        assert LeftOut(3) in self.LINES[1]

    def test_reads_exit_codes_and_minimum_duration(self) -> None:
        jobs = [line for line in self.LINES[1] if isinstance(line, TraceLine)]
        assert [job.extra.get("exit_code") for job in jobs] == [None, 1, 143]
        assert jobs[2].duration_us == 1_000_000


class TestDamagedFile:
    CONTENT = (DATA / "own_broken.csv").read_bytes()

    def test_keeps_all_valid_lines(self) -> None:
        jobs = [line for line in read(self.CONTENT)[1] if isinstance(line, TraceLine)]
        names = [job.name for job in jobs]
        assert names == ["good-1", "good-2", "stranger", "odd-type", "good-3"]
        assert jobs[1].submit_us == 30_500_000
        assert jobs[1].extra == {"weight": 3, "gpu_types": ["v100"]}

    def test_reports_line_and_field_of_bad_lines(self) -> None:
        assert bad(self.CONTENT) == [
            (4, "gpus"),
            (5, ""),
            (7, "submit"),
            (8, ""),
            (9, "tenant"),
        ]

    @pytest.mark.parametrize(
        ("line", "field"),
        [
            (b"a,north,1,0,-1\n", "duration"),
            (b"a,north,1,0,nan\n", "duration"),
            (b"a,north,1,0,1e9\n", "duration"),
            (b"a,north,1,99999999999,1\n", "submit"),
            (b"a,north,1,tomorrow,1\n", "submit"),
            (b"a,north,1_0,0,1\n", "gpus"),
            (b"a,north,1.5.0,0,1\n", "gpus"),
            (b"a,north,-1,0,1\n", "gpus"),
            (b"a,north,999999999,0,1\n", "gpus"),
            ("a,north,\u0663,0,1\n".encode(), "gpus"),
            (b"a" * 121 + b",north,1,0,1\n", "name"),
            (b"a,north,1,0,1,extra\n", ""),
            (b"\xff\xfe,north,1,0,1\n", ""),
            (b"a\x00,north,1,0,1\n", ""),
            (b'"a"b,north,1,0,1\n', ""),
            (b"a" * (LINE_MAX * 3) + b"\n", ""),
        ],
    )
    def test_reports_bad_line_between_valid_lines(self, line: bytes, field: str) -> None:
        content = OWN + GOOD + line + GOOD
        assert bad(content) == [(3, field)]
        jobs = [one for one in read(content)[1] if isinstance(one, TraceLine)]
        assert [job.line for job in jobs] == [2, 4]

    def test_truncated_file_keeps_lines_before_damage(self) -> None:
        packed = gzip.compress(OWN + GOOD * 3000, mtime=0)
        _, lines = read(packed[:-40])
        assert isinstance(lines[-1], BadLine)
        assert "damaged" in lines[-1].reason
        assert all(isinstance(line, TraceLine) for line in lines[:-1])

    @given(st.lists(st.binary(max_size=60).filter(lambda b: b"\n" not in b), max_size=8))
    def test_keeps_valid_line_after_random_bytes(self, junk: list[bytes]) -> None:
        content = OWN + b"\n".join([*junk, b"last,north,1,0,60"]) + b"\n"
        lines = read(content)[1]
        assert isinstance(lines[-1], TraceLine)
        assert lines[-1].name == "last"


class TestHeader:
    def test_unknown_header_error_lists_columns_to_map(self) -> None:
        with pytest.raises(HeaderError, match=r"tenant, submit, duration.*team, begin, run_h"):
            read(b"team,gpus,begin,run_h\nx,1,0,1\n")

    def test_maps_columns(self) -> None:
        content = "\ufeffteam,gpus,begin,run\r\nx,2.0,2020-01-01T00:00:00+02:00,1\r\n\r\n".encode()
        mapping = {"team": "tenant", "begin": "submit", "run": "duration"}
        columns, lines = read(content, mapping=mapping)
        assert columns.format == "mapped"
        assert lines == [
            TraceLine(2, "line-2", "x", 2, 1577829600_000_000, 1_000_000, {}),
        ]

    def test_mapping_overrides_columns_of_format(self) -> None:
        header = b"name,tenant,team,gpus,submit_s,duration_s\n"
        _, lines = read(header + b"a,north,south,1,0,1\n", mapping={"team": "tenant"})
        assert isinstance(lines[0], TraceLine)
        assert lines[0].tenant == "south"

    @pytest.mark.parametrize(
        ("header", "mapping"),
        [
            (b"", {}),
            (b"\xff\xff\n", {}),
            (b"tenant,tenant,gpus,submit_s,duration_s\n", {}),
            (OWN, {"nowhere": "tenant"}),
            (OWN, {"name": "colour"}),
            (OWN, {"name": "tenant", "tenant": "tenant"}),
        ],
    )
    def test_rejects_invalid_header_or_mapping(
        self, header: bytes, mapping: dict[str, str]
    ) -> None:
        with pytest.raises(HeaderError):
            read(header, mapping=mapping)
