"""Test that a lease's start and end come from the engine, even if the job changes its files."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from django.test import override_settings
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evenshare_core.units import SECOND_US
from scheduling.engine.executors.base import OVER, Report
from scheduling.engine.executors.local import LocalExecutor
from scheduling.engine.executors.shim.files import lease_folder, write_json
from scheduling.engine.executors.shim_ends import PoolInstants, report_of
from scheduling.engine.executors.spans import EngineWord as Word
from scheduling.engine.executors.spans import span_of
from scheduling.models import PoolClock
from tests.hostile import WORDS, HostileFile, hostile_files

TOKEN = "es-7-1"
NOW = 1_800_000_000 * SECOND_US
MINUTE_US = 60 * SECOND_US
INSTANTS = PoolInstants(
    PoolClock(
        anchor_pool=datetime(1970, 1, 1, tzinfo=UTC), anchor_wall=datetime(1970, 1, 1, tzinfo=UTC),
        scale=1, paused=False,
    ),
    timedelta(0),
)  # fmt: skip


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    with TemporaryDirectory() as folder, override_settings(LOCAL_ROOT=folder):
        yield Path(folder)


def reported(root: Path, files: list[HostileFile], seen: Word | None) -> Report | None:
    """Return the report on a correct lease after its job changed some of its files."""
    folder = lease_folder(root, TOKEN)
    folder.mkdir(parents=True, exist_ok=True)
    now_us = time.time_ns() // 1000
    started = {"started_us": now_us - MINUTE_US}
    for name, said in (("shim.json", started), ("exit.json", {**started, "ended_us": now_us - 1})):
        HostileFile(name, "gone").write(folder)
        write_json(folder / name, said)
    for file in files:
        file.write(folder)
    executor = LocalExecutor()
    claim = executor._reopening([TOKEN], lambda: executor._claim(TOKEN))
    ended = executor._reopening([TOKEN], lambda: executor._exit(TOKEN))
    at_us = time.time_ns() // 1000
    return report_of(TOKEN, at_us, INSTANTS, claim=claim, ended=ended, seen=seen)


@settings(max_examples=100)
@given(files=st.lists(hostile_files(), min_size=1, max_size=4), is_over=st.booleans())
@example(
    files=[HostileFile("shim.json", content=b'{"started_us": 4503599627370496}')], is_over=True
)
@example(files=[HostileFile("shim.json", content=b"{}")], is_over=False)
@example(files=[HostileFile("shim.json", content=b'{"never": true}')], is_over=False)
@example(files=[HostileFile("exit.json", content=b'{"code": 0, "ended_us": 2}')], is_over=False)
def test_report_follows_engine_for_any_files(
    root: Path, files: list[HostileFile], *, is_over: bool
) -> None:
    now_us = time.time_ns() // 1000
    seen = Word(now_us - MINUTE_US, now_us - SECOND_US if is_over else None)
    report = reported(root, files, seen)
    assert report is not None
    assert 0 <= report.started_us - (now_us - MINUTE_US) <= SECOND_US
    assert (report.state in OVER) == is_over
    if is_over:
        assert report.ended_us is not None
        assert abs(report.ended_us - (now_us - SECOND_US)) <= SECOND_US


@settings(max_examples=30)
@given(files=st.lists(hostile_files(WORDS), min_size=1, max_size=2))
def test_lease_unknown_to_engine_never_ends_in_future(root: Path, files: list[HostileFile]) -> None:
    report = reported(root, files, None)
    now_us = time.time_ns() // 1000
    if report is not None and report.state in OVER:
        assert report.ended_us is not None
        assert report.started_us <= report.ended_us <= now_us


class TestSpan:
    @pytest.mark.parametrize(
        ("claim", "ended", "seen", "span"),
        [
            # A difference of less than a second is allowed, because files have a finer resolution
            # than the engine.
            ({"started_us": NOW - 7}, None, Word(NOW - SECOND_US), (-7, None)),
            (
                {"started_us": NOW - MINUTE_US + 7}, {"ended_us": NOW - 9},
                Word(NOW - MINUTE_US, NOW - 2), (-MINUTE_US + 7, -9),
            ),
            # If the difference is larger, the engine's start or end replaces the file's.
            ({"started_us": NOW - 5}, None, Word(NOW - MINUTE_US), (-MINUTE_US, None)),
            ({}, {"ended_us": NOW - MINUTE_US}, Word(NOW - MINUTE_US, NOW - 2), (-MINUTE_US, -2)),
            # An end in a file does not count while the engine reports that the job runs.
            ({}, {"ended_us": NOW - 3}, Word(NOW - MINUTE_US), (-MINUTE_US, None)),
            # A waiting job has no start, whatever its files say.
            ({"started_us": NOW - 5}, None, Word(None), (None, None)),
            # The engine's clock is ahead of the portal's.
            ({}, {}, Word(NOW + 5, NOW + MINUTE_US), (0, 0)),
            # If the engine has no record of the job, a file counts if its time is possible.
            ({"started_us": NOW + 5}, {"ended_us": NOW + 9}, None, (0, 0)),
            ({"started_us": NOW - 5}, {"ended_us": NOW - 9}, None, (-5, -5)),
        ],
    )  # fmt: skip
    def test_follows_engine(
        self,
        claim: dict[str, object],
        ended: dict[str, object] | None,
        seen: Word | None,
        span: tuple[int | None, int | None],
    ) -> None:
        found = span_of(seen, claim, ended, NOW)
        assert tuple(None if one is None else one - NOW for one in found[:2]) == span

    @pytest.mark.parametrize(
        ("claim", "ended", "seen", "says"),
        [
            ({"started_us": NOW - MINUTE_US}, {"ended_us": NOW}, Word(NOW - MINUTE_US, NOW), ""),
            ({"started_us": NOW - MINUTE_US}, None, Word(NOW - MINUTE_US - 2 * SECOND_US), ""),
            ({"started_us": NOW + MINUTE_US}, None, Word(NOW - MINUTE_US), "it started at 2027"),
            ({"started_us": 1}, None, Word(NOW - MINUTE_US), "it started at 1970"),
            ({}, None, Word(NOW - MINUTE_US), "no start"),
            ({}, None, Word(NOW - 5), ""),
            (
                {"started_us": NOW - MINUTE_US}, {"ended_us": NOW - MINUTE_US},
                Word(NOW - MINUTE_US), "it ended at 2027-01-15 07:59:00 UTC; the engine: it runs",
            ),
            (
                {"started_us": NOW - MINUTE_US}, {"ended_us": NOW - MINUTE_US},
                Word(NOW - MINUTE_US, NOW), "it ended at 2027-01-15 07:59:00 UTC; the",
            ),
            (
                {"started_us": NOW - MINUTE_US}, {"ended_us": 1},
                Word(NOW - MINUTE_US), "it ended at 1970-01-01 00:00:00 UTC; the engine: it runs",
            ),
            (
                {"started_us": NOW - MINUTE_US}, {},
                Word(NOW - MINUTE_US), "it ended; the engine: it runs",
            ),
            # Nothing observed the end, so the portal wrote this one.
            (
                {"started_us": NOW - MINUTE_US}, {"ended_us": NOW, "lost": True},
                Word(NOW - MINUTE_US, NOW - MINUTE_US), "",
            ),
        ],
    )  # fmt: skip
    def test_reports_contradictions_of_files(
        self,
        claim: dict[str, object],
        ended: dict[str, object] | None,
        seen: Word,
        says: str,
    ) -> None:
        said = span_of(seen, claim, ended, NOW).contradiction
        assert said.startswith(says)
        assert bool(said) == bool(says)
