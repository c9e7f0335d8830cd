"""Test `evenshare job`, `queue` and `price` against the REST contract."""

import uuid
from typing import Any

import pytest

from evenshare.cli.api import Transport

from .conftest import Run
from .portal import TOKEN, Portal

SUBMIT = ("job", "submit", "--pool", "local", "--gpus", "2")
ESCAPES = "\x1b]0;title\x07 \x9b31m \u202e \r\x7f"


class TestSubmit:
    def test_prints_only_job_id(self, run: Run, portal: Portal) -> None:
        done = run(*SUBMIT, "--", "python", "train.py")
        assert (done.code, done.err) == (0, "")
        assert done.out == f"{portal.jobs[0]['id']}\n"

    def test_sends_only_given_fields(self, run: Run, portal: Portal) -> None:
        run(
            *SUBMIT, "--name", "n", "--gpu-type", "a100", "--gpu-type", "h100", "--max-price",
            "1.65", "--env", "A=1=2", "--tenant", "vision", "--weight", "3",
            "--", "sh", "-c", "echo $HOME", "--", "--wait",
        )  # fmt: skip
        assert portal.seen[-1][3] == {
            "pool": "local", "gpus": 2, "name": "n", "gpu_types": ["a100", "h100"],
            "max_price": "1.65", "environment": {"A": "1=2"}, "tenant": "vision", "weight": 3,
            "command": ["sh", "-c", "echo $HOME", "--", "--wait"],
        }  # fmt: skip
        run(*SUBMIT, "--", "true")
        assert portal.seen[-1][3] == {"pool": "local", "gpus": 2, "command": ["true"]}

    @pytest.mark.parametrize("faults", [["cut"], [503, "cut"], ["cut", 409]])
    def test_finds_its_job_if_response_is_lost(
        self, faults: list[int | str], run: Run, portal: Portal
    ) -> None:
        portal.script = list(faults)
        done = run(*SUBMIT, "--", "true")
        assert done.code == 0
        assert [j["id"] for j in portal.jobs] == [done.out.strip()]
        keys = {headers["idempotency-key"] for _, _, headers, _ in portal.seen}
        (key,) = keys
        assert uuid.UUID(key).version == 4

    def test_gives_up_after_bounded_attempts(self, run: Run, portal: Portal) -> None:
        portal.script = ["cut"] * 50
        done = run(*SUBMIT, "--", "true")
        assert (done.code, len(portal.seen), len(portal.jobs)) == (3, 4, 1)
        assert "the connection to" in done.err

    def test_reused_key_with_other_job_is_conflict(self, run: Run, portal: Portal) -> None:
        assert run(*SUBMIT, "--idempotency-key", "k", "--", "true").code == 0
        assert run(*SUBMIT, "--idempotency-key", "k", "--", "true").code == 0
        assert run(*SUBMIT, "--idempotency-key", "k", "--", "false").code == 4
        assert len(portal.jobs) == 1

    def test_shows_field_reason_and_hint_if_rejected(self, run: Run) -> None:
        done = run("job", "submit", "--pool", "local", "--gpus", "9", "--", "true")
        assert (done.code, done.out) == (3, "")
        assert "Not accepted (422)" in done.err
        assert "gpus: is more than the pool has\\x1b[31m\n    -> 8" in done.err

    @pytest.mark.parametrize(
        ("gpus", "code", "word"), [("2", 0, "feasible"), ("9", 3, "not feasible (too_large)")]
    )
    def test_dry_run_reports_feasibility(
        self, gpus: str, code: int, word: str, run: Run, portal: Portal
    ) -> None:
        done = run("job", "submit", "--pool", "p", "--gpus", gpus, "--dry-run", "--", "true")
        assert done.code == code
        assert done.out.startswith(f"{word}\n")
        assert "feasibility, not a reservation" in done.out
        assert ("price 1.250000 credits" in done.out) == (code == 0)
        assert portal.jobs == []

    def test_wait_returns_at_end_of_job(self, run: Run, portal: Portal) -> None:
        portal.states = ["pending", "running", "stopping", "pending", "running", "succeeded"]
        done = run(*SUBMIT, "--wait", "--output", "json", "--", "true")
        assert (done.code, done.json["state"]) == (0, "succeeded")
        # Without a terminal there is no progress.
        assert done.err.splitlines() == [f"submitted {portal.jobs[0]['id']}"]

    @pytest.mark.parametrize("state", ["failed", "cancelled"])
    def test_wait_exits_with_error_if_job_fails(self, state: str, run: Run, portal: Portal) -> None:
        portal.states = ["running", state]
        assert run(*SUBMIT, "--wait", "--", "true").code == 3

    def test_interrupt_leaves_job_running(
        self, run: Run, portal: Portal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(Transport, "get", interrupt)
        done = run(*SUBMIT, "--wait", "--", "true")
        assert done.code == 130
        assert (
            f"The job goes on. To end it: evenshare job cancel {portal.jobs[0]['id']}" in done.err
        )
        assert [method for method, *_ in portal.seen] == ["POST"]


class TestExplain:
    def test_shows_request_without_sending_it(self, run: Run, portal: Portal) -> None:
        done = run(*SUBMIT, "--explain", "--", "python", "x.py")
        assert done.code == 0
        assert done.out.startswith("curl -sS -X POST \\\n")
        assert done.out.endswith(f" \\\n  {portal.url}/api/v1/jobs\n")
        assert '-H "Authorization: Bearer $EVENSHARE_TOKEN" ' in done.out
        assert "-H 'Idempotency-Key: " in done.out
        assert '"python"' in done.out
        assert TOKEN not in done.out
        assert portal.seen == []

    def test_hides_password(self, run: Run) -> None:
        done = run("login", "--username", "u", "--password", "right", "--explain")
        assert '"password": "<password>"' in done.out
        assert "right" not in done.out

    def test_prints_json_on_demand(self, run: Run, portal: Portal) -> None:
        call = run("job", "why", "12345678", "--explain", "--output", "json").json
        assert call["method"] == "GET"
        assert call["url"] == f"{portal.url}/api/v1/jobs/12345678/why"


class TestStartingJob:
    def test_is_distinguished_from_running_job(self, run: Run, portal: Portal) -> None:
        starting = portal.job("running", phase="starting", name="one")
        running = portal.job("running", phase="running", name="two")
        old = portal.job("running", name="three")
        lines = run("job", "list").out.splitlines()[1:]
        assert [line.split()[1] for line in lines] == ["running", "running", "starting"]
        for state, jobs in (("starting", [starting]), ("running", [old, running])):
            found = run("job", "list", "--state", state, "--output", "json").json
            assert [job["id"] for job in found] == [job["id"] for job in jobs]
        assert "starting" in run("job", "show", starting["id"]).out

    def test_counts_as_running_if_portal_has_no_phases(self, run: Run, portal: Portal) -> None:
        portal.takes_phase = False
        old = portal.job("running", name="one")
        portal.job("pending", name="two")
        found = run("job", "list", "--state", "running", "--output", "json").json
        assert [job["id"] for job in found] == [old["id"]]
        refused = run("job", "list", "--state", "starting")
        assert refused.code != 0
        assert "phase is not a parameter of this endpoint" in refused.err


class TestList:
    def test_follows_pages_only_as_far_as_requested(self, run: Run, portal: Portal) -> None:
        for _ in range(250):
            portal.job()
        assert len(run("job", "list", "--output", "json").json) == 20
        assert len(portal.seen) == 1
        assert len(run("job", "list", "--limit", "120", "--output", "json").json) == 120
        portal.cursors = True
        found = run("job", "list", "--all", "--state", "pending", "--output", "json").json
        assert [j["id"] for j in found] == [j["id"] for j in portal.jobs]

    def test_filters_on_server(self, run: Run, portal: Portal) -> None:
        portal.job("running")
        portal.job("failed")
        assert len(run("job", "list", "--state", "failed", "--output", "json").json) == 1

    def test_prints_plain_table_into_pipe(self, run: Run, portal: Portal) -> None:
        job = portal.job(name="é" + ESCAPES)
        done = run("job", "list")
        head, row = done.out.splitlines()
        assert head.split() == ["ID", "STATE", "GPUS", "POOL", "TENANT", "SUBMITTED", "NAME"]
        assert row.split()[:4] == [job["id"], "pending", "2", "local"]
        assert row.endswith("é\\x1b]0;title\\x07 \\x9b31m \\u202e \\x0d\\x7f")


class TestSingleJob:
    @pytest.mark.parametrize("verb", ["show", "why", "cancel"])
    def test_is_found_by_id_prefix(self, verb: str, run: Run, portal: Portal) -> None:
        for _ in range(150):
            portal.job()
        job = portal.jobs[-1]
        assert run("job", verb, job["id"][:8]).code == 0
        assert run("job", verb, job["id"].upper()).code == 0

    def test_ambiguous_prefix_is_rejected(self, run: Run, portal: Portal) -> None:
        portal.job(id="12345678-0000-4000-8000-000000000001")
        portal.job(id="12345678-0000-4000-8000-000000000002")
        done = run("job", "show", "12345678")
        assert done.code == 2
        assert "begins 2 jobs' ids" in done.err

    @pytest.mark.parametrize("text", ["1234567", "../../x", "zzzzzzzz", "12345678/why"])
    def test_invalid_id_sends_no_request(self, text: str, run: Run, portal: Portal) -> None:
        assert run("job", "show", text).code == 2
        assert portal.seen == []

    def test_of_other_tenant_is_not_found(self, run: Run) -> None:
        done = run("job", "show", str(uuid.uuid4()))
        assert done.code == 3
        assert "No such job (404)" in done.err
        assert "request r-1" in done.err

    def test_shows_lease_and_progress(self, run: Run, portal: Portal) -> None:
        lease = {"number": 2, "expires_at": "2031-05-04T03:02:01.5Z", "nodes": ["n\x1b1"],
                 "own": 1, "borrowed": 1, "price": "1.250000"}  # fmt: skip
        progress = {"step": 5, "total": 10, "metrics": {"loss": 0.5}}
        job = portal.job("running", lease=lease, progress=progress)
        out = run("job", "show", job["id"]).out
        assert "2 until 2031-05-04T03:02:01Z on n\\x1b1, 1 own + 1 borrowed at 1.250000" in out
        assert "step 5 of 10, loss 0.5" in out
        assert "profiling run" not in out

    def test_shows_that_it_is_profiling_run(self, run: Run, portal: Portal) -> None:
        job = portal.job("running", profiling_s=150)
        out = " ".join(run("job", "show", job["id"]).out.split())
        assert "profiling run ends after 150 s on GPUs" in out

    def test_shows_queue_position_and_estimated_start(self, run: Run, portal: Portal) -> None:
        start: dict[str, Any]
        start = {"round": 4211, "p50": "2031-05-04T03:02:01.5Z", "p90": "2031-05-04T04:00:00Z",
                 "simulated_until": "2031-05-05T03:00:00Z", "reason": "", "why": ""}  # fmt: skip
        place = {"round": 4212, "position": 3, "tenant_position": 1}
        queue: dict[str, Any] = {**place, "start": start}
        job = portal.job("pending", queue=queue)

        def out() -> str:
            return " ".join(run("job", "show", job["id"]).out.split())

        assert "3 in the pool, 1 of your tenant, as of round 4212" in out()
        expected = "expected about 2031-05-04T03:02:01Z (p50), by 2031-05-04T04:00:00Z (p90)"
        assert f"{expected}, as of round 4211" in out()
        start["p90"] = None
        assert "after 2031-05-05T03:00:00Z (p90)" in out()
        start |= {"p50": None, "reason": "beyond", "why": "It did not start.\x1b"}
        assert "no reliable estimate as of round 4211: It did not start.\\x1b" in out()
        queue |= {"position": None, "order": "There is no queue.", "start": None}
        assert "There is no queue." in out()
        assert "not estimated yet" in out()

    def test_shows_promised_start(self, run: Run, portal: Portal) -> None:
        job = portal.job(starts_by="2031-05-04T03:15:00.000000Z")
        out = " ".join(run("job", "show", job["id"]).out.split())
        assert "starts by 2031-05-04T03:15:00Z at the latest" in out
        assert "starts by" not in run("job", "show", portal.job(starts_by=None)["id"]).out

    def test_shows_expected_stop_of_metric(self, run: Run, portal: Portal) -> None:
        stop: dict[str, Any] = {
            "iterations": 41_000, "low": 38_000, "high": 47_000, "error_percent": 8.6,
            "source": "fitted", "note": "", "evaluations": 32, "iteration": 20_000,
        }  # fmt: skip
        job = portal.job("running", stop_estimate=stop)

        def out() -> str:
            return " ".join(run("job", "show", job["id"]).out.split())

        numbers = "after 41000 iterations (10 % to 90 %: 38000 to 47000), from 32 evaluations"
        assert f"expected stop {numbers} (fitted)" in out()
        stop |= {"source": "cap", "note": "the cap was reached\x1b"}
        assert f"{numbers} (cap: the cap was reached\\x1b)" in out()

    def test_why_explains_waiting(self, run: Run, portal: Portal) -> None:
        lines = run("job", "why", portal.job()["id"]).out.splitlines()
        assert lines[:3] == [
            "pending  (no_free_gpus)",
            "Fewer GPUs are free than the job needs.",
            "-> Wait.",
        ]
        assert lines[-1] == "as of round 7, 2031-05-04T03:02:01Z"

    def test_why_shows_preemption_with_notice_and_reason(self, run: Run, portal: Portal) -> None:
        row = {"moved": False, "at": "2031-05-04T03:00:00Z", "notice_s": 30, "round": 6,
               "words": "north\x1b was below its quota (guarantee)"}  # fmt: skip
        job = portal.job("pending", preempted=row)
        assert (
            "preempted 2031-05-04T03:00:00Z with 30 s notice, by round 6:"
            " north\\x1b was below its quota (guarantee)"
        ) in run("job", "why", job["id"]).out
        row["moved"] = True
        assert "moved 2031-05-04T03:00:00Z with 30 s" in run("job", "why", job["id"]).out

    def test_why_shows_leases_preempted_for_it(self, run: Run, portal: Portal) -> None:
        rows = [
            {"moved": False, "notice_s": 30, "round": 6, "gpus": 4, "job": None,
             "tenant": {"name": "north\x1b"}},
            {"moved": True, "notice_s": 30, "round": 6, "gpus": 1, "tenant": {"name": "south"},
             "job": {"id": "0", "name": "mine"}},
        ]  # fmt: skip
        out = run("job", "why", portal.job("running", made_way=rows)["id"]).out
        assert (
            "4 GPUs were freed for it by round 6: a job of north\\x1b was preempted with 30 s"
            " notice"
        ) in out
        assert "1 GPU was freed for it by round 6: mine was moved with 30 s notice" in out

    def test_shows_deadline_and_time_left(self, run: Run, portal: Portal) -> None:
        job = portal.job()
        job |= {
            "job_class": "soft_slo", "deadline": "2026-12-01T00:00:00.000000Z",
            "deadline_steps": ["100:100", "150:20"], "deadline_left_s": 9005,
        }  # fmt: skip
        out = " ".join(run("job", "show", job["id"]).out.split())
        assert "job class soft_slo" in out
        assert "deadline steps 100:100 150:20" in out
        assert "deadline left 2h30m05s" in out
        job["deadline_left_s"] = -65
        out = " ".join(run("job", "show", job["id"]).out.split())
        assert "deadline left none: it passed 0h01m05s ago" in out

    def test_shows_end_of_lease_protection(self, run: Run, portal: Portal) -> None:
        lease = {"number": 2, "expires_at": "2031-05-04T03:02:01Z", "nodes": ["n1"], "own": 1,
                 "borrowed": 0, "protected_until": "2031-05-04T03:01:00Z"}  # fmt: skip
        out = run("job", "show", portal.job("running", lease=lease)["id"]).out
        assert "1 own + 0 borrowed, protected until 2031-05-04T03:01:00Z" in out


class TestLogs:
    def test_are_read_to_end_and_escaped(self, run: Run, portal: Portal) -> None:
        job = portal.job("running")
        portal.logs = {1: "one\n" * 50 + ESCAPES + "\n\ttab\n"}
        done = run("job", "logs", job["id"])
        assert done.code == 0
        assert done.out == ("one\n" * 50 + "\\x1b]0;title\\x07 \\x9b31m \\u202e \n\\x7f\n\ttab\n")

    def test_carriage_returns_become_newlines(self, run: Run, portal: Portal) -> None:
        job = portal.job("running")
        portal.logs = {1: "start\r 1%\r 2%\r\ndone\n"}
        assert run("job", "logs", job["id"]).out == "start\n 1%\n 2%\ndone\n"

    def test_follow_continues_across_leases(self, run: Run, portal: Portal) -> None:
        job = portal.job("running")
        portal.logs = {1: "first\n"}
        page = portal._of_job
        asked = 0

        def later(method: str, words: list[str], query: dict[str, str]) -> tuple[int, object]:
            nonlocal asked
            asked += 1
            if asked == 6:
                portal.logs[2] = "second\n" * 10
            if asked == 12:
                portal.logs[2] += "last\n"
                job["state"] = "succeeded"
            return page(method, words, query)

        portal._of_job = later  # type: ignore[method-assign]  # the job goes on meanwhile
        done = run("job", "logs", job["id"], "--follow")
        assert (done.code, done.out) == (0, "first\n" + "second\n" * 10 + "last\n")
        assert "-- lease 2 --" in done.err

    def test_start_with_newest_lease_and_mention_earlier(self, run: Run, portal: Portal) -> None:
        job = portal.job("succeeded")
        portal.logs = {1: "first\n", 2: "second\n"}
        for words in ((), ("--follow",)):
            done = run("job", "logs", job["id"], *words)
            assert (done.code, done.out) == (0, "second\n")
            assert "lease 2; earlier leases: --lease N" in done.err
        assert run("job", "logs", job["id"], "--lease", "1").out == "first\n"

    def test_follow_ends_for_job_that_never_ran(self, run: Run, portal: Portal) -> None:
        job = portal.job("cancelled")
        portal.logs = {0: ""}
        assert run("job", "logs", job["id"], "--follow").code == 0


class TestQueueAndPrices:
    def test_queue_lists_waiting_jobs(self, run: Run, portal: Portal) -> None:
        mine = {"position": 1, "id": "12345678-1", "tenant": {"name": "vision"}, "gpus": 2,
                "reason_code": "lease_turn", "submitted_at": "2031-05-04T03:02:01Z"}  # fmt: skip
        portal.queue = [mine, {**mine, "position": 2, "id": None, "tenant": None}]
        rows = run("queue", "--pool", "local").out.splitlines()[1:]
        assert [row.split()[:3] for row in rows] == [
            ["1", "12345678-1", "vision"],
            ["2", "-", "-"],
        ]

    def test_queue_shows_dash_without_position(self, run: Run, portal: Portal) -> None:
        portal.queue = [{"position": None, "id": "12345678-1", "gpus": 2}]
        assert run("queue", "--pool", "local").out.splitlines()[1].split()[0] == "-"

    def test_price_history_lists_prices_of_type(self, run: Run, portal: Portal) -> None:
        portal.prices = [
            {"gpu_type": "cpu", "price": "1.5", "surcharge": None, "queued": 4, "used": 2},
            {"gpu_type": "cpu", "price": "1.0"},
        ]
        at = ("--pool", "local", "--type", "cpu", "--since", "2031-01-01T00:00:00Z")
        done = run("price", "history", *at, "--limit", "1")
        assert [line.split() for line in done.out.splitlines()] == [
            ["GPU", "TYPE", "PRICE", "USED", "QUEUED", "SURCHARGE"], ["cpu", "1.5", "2", "4", "-"]
        ]  # fmt: skip
        assert run("price", "history", "--pool", "local").code == 2

    def test_price_forecast_shows_quantiles_and_accuracy(self, run: Run, portal: Portal) -> None:
        point = {"at": "2031-05-04T03:15:00Z", "p10": "1.0", "p50": "1.2", "p90": "1.5"}
        portal.forecasts = [
            {"gpu_type": "cpu", "points": [point], "reason": "", "counted": 40, "hits": 30},
            {
                "gpu_type": "odd",
                "points": [],
                "reason": "too_little_known",
                "counted": 0,
                "hits": 0,
            },
        ]
        done = run("price", "forecast", "--pool", "local")
        assert "cpu: 75 % of 40 later prices were within p10 to p90" in done.err
        assert "odd: no reliable forecast: too_little_known" in done.err
        assert done.out.splitlines()[0].split() == ["TYPE", "AT", "P10", "P50", "P90"]
        assert done.out.splitlines()[1].split()[-3:] == ["1.0", "1.2", "1.5"]

    def test_price_and_price_show_are_equivalent(self, run: Run, portal: Portal) -> None:
        portal.prices = [{"pool": "local", "price": "1.0"}]
        assert run("price", "show", "--pool", "local").out == run("price", "--pool", "local").out

    def test_price_shows_current_prices(self, run: Run, portal: Portal) -> None:
        portal.prices = [{"pool": "local", "gpu_type": "cpu", "price": "1.0", "odd": "x\x1b"}]
        assert [line.split() for line in run("price").out.splitlines()] == [
            ["POOL", "GPU", "TYPE", "PRICE", "ODD"],
            ["local", "cpu", "1.0", "x\\x1b"],
        ]
