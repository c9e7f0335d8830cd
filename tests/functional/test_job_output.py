"""Test a job's output on its page and on a separate page: bounded, inert, and private."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from evenshare_core.domain.reasons import EndReason
from portal.common.access import about
from portal.jobs.text.failure import LINES, exit_meaning
from portal.jobs.text.losses import HEAD_BYTES, TAIL_BYTES, work_losses
from portal.jobs.text.output import LINE_CHARACTERS, TAIL_LINES, output_lines, reported
from scheduling.engine.executors.local_files import WINDOW_BYTES, LogWindow, read_log
from scheduling.models import Job, Lease
from scheduling.selectors.jobs.tenant_jobs import JobStory, LeaseView
from scheduling.services.logs import log_page
from tests.functional.test_job_usage import ended, leased
from tests.functional.visitors import Town, town

HOSTILE = (
    b"<script>alert(1)</script>\n\x1b[31mred\x1b[0m \x1b]0;title\x07\n\xff\xfe\x80bad\n"
    b"10%\r20%\r\nnul\x00here\n\xe2\x80\xaetxt.exe\n\xc2\x9b31m\n"
)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, settings: Any) -> Town:
    request.getfixturevalue("db")
    settings.LOCAL_ROOT = str(tmp_path)
    there = town()
    there.cluster.pool.executor = "local"
    there.cluster.pool.save(update_fields=["executor"])
    return there


def wrote(place: Town, root: Path, data: bytes, *, job: Job | None = None, lease: int = 1) -> Job:
    """Return a job whose lease has this output."""
    job = job or place.submit()
    Job.objects.filter(pk=job.pk).update(leases_held=lease)
    folder = root / str(job.pk) / "leases" / str(lease)
    folder.mkdir(parents=True)
    (folder / "out.log").write_bytes(data)
    job.refresh_from_db()
    return job


def poll(place: Town, job: Job, query: str = "") -> Any:
    return place.owner.get(f"/jobs/{job.uid}/log/?{query}", headers={"hx-request": "true"})


def shown(page: str) -> str:
    found = re.search(r'id="log-lines".*?<pre>(.*?)</pre>', page, re.DOTALL)
    assert found is not None
    return found[1]


class TestOutputLines:
    def test_remove_control_characters(self) -> None:
        lines = output_lines(HOSTILE)
        assert not re.search("[\x00-\x08\x0a-\x1f\x7f-\x9f\u202e]", "".join(lines))
        assert lines[3:5] == ["10%", "20%"]
        assert "\N{REPLACEMENT CHARACTER}" in lines[2]

    def test_start_at_a_whole_character(self) -> None:
        whole = "é" * 10
        assert output_lines(whole.encode()[1:], from_start=False) == ["é" * 9]

    def test_truncate_very_long_lines(self) -> None:
        (line,) = output_lines(b"x" * 250_000)
        assert len(line) < LINE_CHARACTERS + 60
        assert line.endswith("246,000 more characters of this line]")


class TestRestLogWindow:
    def test_joined_windows_match_page_for_any_limit(self, place: Town, tmp_path: Path) -> None:
        written = b"start\r 1%\r 2%\r\n\nwindows\r\nend\r"
        job = wrote(place, tmp_path, written)
        leased(place, job, 1, place.cluster.at)
        for limit in (1, 2, 7, len(written)):
            text, offset = "", 0
            while offset < len(written):
                page = log_page(job, lease=1, offset=offset, limit=limit)
                assert page is not None
                text, offset = text + page.text, page.next_offset
            assert text.splitlines() == output_lines(written)


def story_of(place: Town, job: Job, *ends: EndReason) -> JobStory:
    """Return a job whose leases of ten minutes each ended for these reasons."""
    begin = place.cluster.at
    leases = [
        Lease(
            pk=number, number=number, job=job, started_at=begin,
            ended_at=begin + timedelta(seconds=600), end_reason=end, granted_round=number,
        )
        for number, end in enumerate(ends, 1)
    ]  # fmt: skip
    holds = tuple(LeaseView(lease, (), ()) for lease in leases)
    return JobStory(job, holds, (), (), {}, None, cut=False)


class TestPreemptionLoss:
    @pytest.mark.parametrize(
        ("first", "second", "loss"),
        [
            (
                b"step 900 of 2474\nstep 1800 of 2474\n",
                b"resumed at step 1763 of 2474\n",
                (
                    "Resumed at step 1,763 of 2,474: about 12 s of work lost, 37 steps repeated",
                    pytest.approx(600 * 37 / 1800),
                ),
            ),
            (
                b"step 1800 of 2474\n",
                b"resumed at step 1800 of 2474\n",
                ("Resumed at step 1,800 of 2,474: no work was lost", 0.0),
            ),
            (b"\xff", b"resumed at step 5 of 9", ("Resumed at step 5 of 9", None)),
            (b"step 5 of 9", b"anything", None),
            (HOSTILE, HOSTILE, None),
        ],
    )
    def test_is_computed_from_outputs_of_both_leases(
        self, place: Town, tmp_path: Path, first: bytes, second: bytes, loss: Any
    ) -> None:
        job = wrote(place, tmp_path, second, job=wrote(place, tmp_path, first), lease=2)
        story = story_of(place, job, EndReason.NOT_RENEWED, EndReason.FINISHED)
        assert work_losses(story) == ({1: loss} if loss else {})

    def test_reads_each_output_of_preempted_leases_once(
        self, place: Town, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job = place.submit()
        for number in range(1, 5):
            wrote(place, tmp_path, b"resumed at step 1 of 9\nstep 3 of 9\n", job=job, lease=number)
        asked: list[tuple[int, int, int]] = []

        def read(job_id: int, lease: int, offset: int, limit: int = WINDOW_BYTES) -> LogWindow:
            asked.append((lease, offset, limit))
            return read_log(job_id, lease, offset, limit)

        monkeypatch.setattr("portal.jobs.text.losses.read_log", read)
        ends = (EndReason.NOT_RENEWED, EndReason.DRAINED, EndReason.FAILED, EndReason.FINISHED)
        assert list(work_losses(story_of(place, job, *ends))) == [1, 2]
        heads = [(lease, 0, HEAD_BYTES) for lease in (1, 2, 3)]
        assert sorted(asked) == sorted([*heads, *((n, -TAIL_BYTES, TAIL_BYTES) for n in (1, 2))])


class TestPage:
    def test_escapes_hostile_log(self, place: Town, tmp_path: Path) -> None:
        job = wrote(place, tmp_path, HOSTILE)
        for answer in (place.owner.get(f"/jobs/{job.uid}/"), poll(place, job)):
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            text = shown(answer.content.decode())
            assert "<" not in text
            assert "&lt;script&gt;" in text
            assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)

    def test_size_is_bounded_for_large_logs(self, place: Town, tmp_path: Path) -> None:
        job = wrote(place, tmp_path, b"line\n" * 100_000 + b"y" * 10_000_000)
        page = poll(place, job).content
        assert len(page) < 300_000
        full = place.owner.get(f"/jobs/{job.uid}/log/?at=0").content
        assert len(full) < 400_000
        assert b'rel="next"' in full

    def test_shows_last_lines_and_links_to_first(self, place: Town, tmp_path: Path) -> None:
        job = wrote(place, tmp_path, b"".join(b"%d\n" % n for n in range(1000)))
        page = poll(place, job).content.decode()
        lines = shown(page).split()
        assert (lines[0], lines[-1], len(lines)) == ("800", "999", TAIL_LINES)
        assert "Earlier output" in page
        first = place.owner.get(f"/jobs/{job.uid}/log/?at=0").content.decode()
        assert shown(first).split()[0] == "0"

    def test_header_shows_pool_of_job(self, place: Town, tmp_path: Path) -> None:
        """The page's round line is that of the job's pool, not of the oldest pool."""
        page = place.owner.get(f"/jobs/{wrote(place, tmp_path, b'x').uid}/log/")
        shown_pool = about(page.wsgi_request).pool
        assert shown_pool is not None
        assert shown_pool.name == place.cluster.pool.name

    def test_states_that_middle_was_cut(self, place: Town, tmp_path: Path, settings: Any) -> None:
        settings.LOCAL_LOG_BYTES = 2**20
        job = wrote(place, tmp_path, b"z\n" * 2**19 + b"end\n")
        assert b"its middle was cut" in poll(place, job).content

    def test_does_not_follow_symlinks(self, place: Town, tmp_path: Path) -> None:
        job = wrote(place, tmp_path, b"")
        log = tmp_path / str(job.pk) / "leases" / "1" / "out.log"
        log.unlink()
        log.symlink_to("/etc/passwd")
        assert b"root:" not in poll(place, job).content

    def test_selects_lease_by_query(self, place: Town, tmp_path: Path) -> None:
        job = wrote(place, tmp_path, b"first\n")
        wrote(place, tmp_path, b"second\n", job=job, lease=2)
        assert shown(poll(place, job).content.decode()) == "second"
        assert shown(poll(place, job, "lease=1").content.decode()) == "first"
        for odd in ("lease=3", "lease=x", "lease=-1", "at=" + "9" * 15):
            assert place.owner.get(f"/jobs/{job.uid}/log/?{odd}").status_code == 200

    def test_poll_returns_204_without_new_output(self, place: Town, tmp_path: Path) -> None:
        job = wrote(place, tmp_path, b"one\n")
        page = poll(place, job).content.decode()
        found = re.search(r'hx-get="[^?]*\?([^"]*)"', page)
        assert found is not None
        query = found[1].replace("&amp;", "&")
        assert poll(place, job, query).status_code == 204
        log = tmp_path / str(job.pk) / "leases" / "1" / "out.log"
        log.write_bytes(b"one\ntwo\n")
        answer = poll(place, job, query)
        assert answer.status_code == 200
        assert "HX-Trigger" not in answer.headers
        Job.objects.filter(pk=job.pk).update(state=Job.State.SUCCEEDED, version=9)
        answer = poll(place, job, query)
        assert answer.headers["HX-Trigger"] == "round-changed"
        assert "hx-get" not in answer.content.decode()

    def test_log_is_limited_to_members_and_operators(self, place: Town, tmp_path: Path) -> None:
        path = f"/jobs/{wrote(place, tmp_path, b'secret').uid}/log/"
        for client in (place.owner, place.mate, place.operator):
            assert b"secret" in client.get(path).content
        for client in (place.neighbour, place.outsider):
            assert client.get(path).status_code == 404
        assert place.nobody.get(path).status_code == 302

    def test_returns_404_for_simulated_jobs(self, place: Town) -> None:
        place.cluster.pool.executor = "virtual"
        place.cluster.pool.save(update_fields=["executor"])
        assert place.owner.get(f"/jobs/{place.submit().uid}/log/").status_code == 404


class TestFailedJob:
    def test_shows_end_of_log_and_exit_signal_first(self, place: Town, tmp_path: Path) -> None:
        written = b"".join(b"step %d\n" % n for n in range(100)) + b"<b>no such file</b>\n"
        job = wrote(place, tmp_path, written)
        ended(leased(place, job, 1, place.cluster.at), place.cluster.at + timedelta(seconds=90))
        Job.objects.filter(pk=job.pk).update(
            state=Job.State.FAILED, exit_code=137, ended_at=place.cluster.at + timedelta(seconds=90)
        )
        page = place.owner.get(f"/jobs/{job.uid}/").content.decode()
        first, rest = page[page.index('id="failure"') :].split('id="tl"')
        assert first.count("step ") == LINES - 1
        assert "&lt;b&gt;no such file&lt;/b&gt;" in first
        assert "ended by SIGKILL" in first
        assert ">137<" in first
        assert 'id="job-log"' in rest  # the whole log is longer, so it follows below

    def test_short_log_is_shown_once(self, place: Town, tmp_path: Path) -> None:
        job = wrote(place, tmp_path, b"no such file\n")
        ended(leased(place, job, 1, place.cluster.at), place.cluster.at + timedelta(seconds=9))
        Job.objects.filter(pk=job.pk).update(
            state=Job.State.FAILED, exit_code=2, ended_at=place.cluster.at + timedelta(seconds=9)
        )
        page = place.owner.get(f"/jobs/{job.uid}/").content.decode()
        assert page.count("no such file") == 1

    @pytest.mark.parametrize("state", [Job.State.SUCCEEDED, Job.State.RUNNING, Job.State.CANCELLED])
    def test_failure_section_is_omitted_for_other_states(
        self, place: Town, tmp_path: Path, state: str
    ) -> None:
        job = wrote(place, tmp_path, b"line\n")
        leased(place, job, 1, place.cluster.at)
        Job.objects.filter(pk=job.pk).update(state=state)
        assert 'id="failure"' not in place.owner.get(f"/jobs/{job.uid}/").content.decode()

    @pytest.mark.parametrize(
        ("code", "meaning"),
        [
            (None, ""),
            (1, ""),
            (127, "the command was not found"),
            (-9, "ended by SIGKILL, often by the system, for lack of memory"),
            (134, "ended by SIGABRT"),
            (255, ""),
            (-(2**31), ""),
        ],
    )
    def test_explains_exit_code(self, code: int | None, meaning: str) -> None:
        assert exit_meaning(code) == meaning


class TestReportedProgress:
    @pytest.mark.parametrize(
        ("said", "step", "total", "metrics", "fraction"),
        [
            ({"step": 3, "total": 4, "metrics": {"loss": 0.25}}, 3, 4, [("loss", "0.25")], 0.75),
            ({"step": 9, "total": 4}, 9, 4, [], 1.0),
            (
                {"step": 9, "total": 0, "metrics": {"a": -1234.5}},
                9,
                0,
                [("a", "\N{MINUS SIGN}1234")],
                None,
            ),
            ({"step": True, "metrics": {"x": "<b>", "n": 2.0}}, None, None, [("n", "2")], None),
        ],
    )
    def test_reads_valid_parts(
        self, said: Any, step: Any, total: Any, metrics: Any, fraction: Any
    ) -> None:
        found = reported(Job(progress=said))
        assert found is not None
        assert (found.step, found.total, found.fraction) == (step, total, fraction)
        assert [(metric.label, metric.value) for metric in found.metrics] == metrics

    @pytest.mark.parametrize("said", [None, [], "x", 3, {}, {"step": "3"}, {"metrics": [1]}])
    def test_ignores_invalid_reports(self, said: Any) -> None:
        assert reported(Job(progress=said)) is None
