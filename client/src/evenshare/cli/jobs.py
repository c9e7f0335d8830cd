"""`evenshare job ...`: submit, list, show, why, cancel and logs. `usage` is in its own module."""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Mapping
from typing import Any

from evenshare.errors import ApiError

from . import sweeps
from .api import Transport, part
from .deadlines import preview_line, standing_line
from .ids import find_id
from .job_facts import facts
from .specification import specification
from .terminal import Terminal, inert, inert_lines, named, short, when

TERMINAL_STATES = ("succeeded", "failed", "cancelled")
ALL_STATES = ("pending", "starting", "running", "stopping", *TERMINAL_STATES)
# In a portal's `state`, starting jobs are also "running"; only `phase` distinguishes them.
PHASES = ("starting", "running")
# Words that pages and people use for states; an older portal accepts only the states.
STATE_SYNONYMS = {
    "queued": "pending",
    "waiting": "pending",
    "done": "succeeded",
    "canceled": "cancelled",
}
# Reasons of a dry run whose job can never start, so its price is of no use.
NEVER_STARTS = ("too_large", "quota_limit")
DID_NOT_SUCCEED = 3
POLL_S = (0.5, 1.0, 2.0)
LOG_BYTES = 65536


def submit(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    body = specification(options)
    if options.dry_run:
        return _dry_run(client, screen, body)
    # A key makes the request repeatable: if the response is lost, a retry makes no second job.
    key = options.idempotency_key or str(uuid.uuid4())
    job = _post(client, body, key)
    identity = str(job["id"])
    if not options.wait:
        if screen.answered(job):
            return 0
        screen.line(inert(identity))
        if _noun(job) == "sweep":
            screen.note(f"{inert(job['jobs'])} jobs: {sweeps.states(job)}")
        else:
            _next_steps(screen, identity)
        return 0
    screen.note(f"submitted {inert(identity)}")
    return _wait(client, screen, job)


def _post(client: Transport, body: dict[str, Any], key: str) -> Any:
    """Submit a job or a sweep; of a YAML file only the portal knows which it is."""
    if not any(name in body for name in sweeps.FIELDS):
        try:
            return client.post("/jobs", body, key=key)
        except ApiError as error:
            if error.problem.get("reason_code") != "is_sweep":
                raise
    return client.post("/sweeps", body, key=key)


def listing(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    state = (options.state or "").strip().lower()
    state = STATE_SYNONYMS.get(state, state) or None
    name = "phase" if state in PHASES else "state"
    given = {name: state, "pool": options.pool, "tenant": options.tenant}
    try:
        jobs = list(client.pages("/jobs", options.limit, **given))
    except ApiError as error:
        # An older portal has no phase: its running jobs include starting ones.
        if error.status != 400 or state != "running":
            raise
        given = {**given, "phase": None, "state": "running"}
        jobs = list(client.pages("/jobs", options.limit, **given))
    heads = ["ID", "STATE", "GPUS", "POOL", "TENANT", "SUBMITTED", "NAME"]
    return screen.listed(jobs, "no jobs", heads, lambda job: _row(job, screen), "GPUS")


def _row(job: Mapping[str, Any], screen: Terminal) -> list[str]:
    return [
        screen.id(job),
        screen.state(phase(job)),
        inert(job.get("gpus", "")),
        short(inert(job.get("pool", "")), 16),
        short(named(job.get("tenant")), 16),
        when(job.get("submitted_at")),
        short(inert(job.get("name", "")), max(12, screen.columns() - 84)),
    ]


def show(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    job = client.get(f"/jobs/{part(find(client, options.id))}")
    _print(screen, job)
    return 0


def why(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    answer = client.get(f"/jobs/{part(find(client, options.id))}/why")
    if screen.answered(answer):
        return 0
    code = inert(answer.get("reason_code") or "")
    screen.line(f"{screen.state(phase(answer))}{f'  ({code})' if code else ''}")
    if answer.get("words"):
        screen.line(inert(answer["words"]))
    if answer.get("next_step"):
        screen.line(f"-> {inert(answer['next_step'])}")
    numbers = answer.get("numbers")
    if isinstance(numbers, Mapping) and numbers:
        screen.line()
        screen.pairs([(inert(name), inert(value)) for name, value in numbers.items()])
    lines = (standing_line(answer.get("deadline_answer"), "deadline: "), _plan(answer.get("plan")))
    for line in filter(None, lines):
        screen.line(line)
    for row in answer.get("overclaims") or ():
        screen.line(_overclaim(row))
    preempted = answer.get("preempted")
    if isinstance(preempted, Mapping):
        screen.line(_preempted(preempted))
    for row in answer.get("made_way") or ():
        screen.line(_made_way(row))
    if answer.get("round") is not None:
        seen = f"as of round {inert(answer['round'])}, {when(answer.get('as_of'))}"
        screen.line(screen.style(seen, "dim"))
    return 0


def _plan(row: Any) -> str:
    """Return a job's planned start and cost, or the price that it needed; empty without a plan."""
    if not isinstance(row, Mapping):
        return ""
    if row.get("kind") == "refused":
        return (
            f"refused: starts at {inert(row.get('needed'))} credits per GPU-hour of"
            f" {inert(row.get('gpu_type'))}; the lowest was {inert(row.get('lowest'))}"
        )
    return (
        f"planned on {inert(row.get('gpu_type'))} at {when(row.get('starts_at'))}: costs"
        f" {inert(row.get('cost'))}, worth {inert(row.get('value'))},"
        f" gains {inert(row.get('gain'))}"
    )


def _overclaim(row: Mapping[str, Any]) -> str:
    """Return the GPU type with a declared speed above the measured speed, and both speeds."""
    return (
        f"declared faster than measured on {inert(row.get('gpu_type'))}:"
        f" {inert(row.get('declared'))}, measured {inert(row.get('measured'))}; rounds use the"
        " measured speed"
    )


def _preempted(row: Mapping[str, Any]) -> str:
    """Return when and why the job last lost its GPUs before its lease expired."""
    verb = "moved" if row.get("moved") else "preempted"
    return (
        f"{verb} {when(row.get('at'))} with {inert(row.get('notice_s'))} s notice, by round"
        f" {inert(row.get('round'))}: {inert(row.get('words'))}"
    )


def _made_way(row: Mapping[str, Any]) -> str:
    """Return a line about a lease that was ended early to free GPUs for this job."""
    verb = "moved" if row.get("moved") else "preempted"
    job = row.get("job")
    who = named(job) if isinstance(job, Mapping) else f"a job of {named(row.get('tenant'))}"
    gpus = "1 GPU was" if row.get("gpus") == 1 else f"{inert(row.get('gpus'))} GPUs were"
    return (
        f"{gpus} freed for it by round {inert(row.get('round'))}:"
        f" {who} was {verb} with {inert(row.get('notice_s'))} s notice"
    )


def cancel(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    job = client.post(f"/jobs/{part(find(client, options.id))}/cancel", repeatable=True)
    if not screen.answered(job):
        screen.line(f"{inert(job['id'])}  {screen.state(phase(job))}")
        if job["state"] not in TERMINAL_STATES:
            screen.note("It is being stopped.")
    return 0


def logs(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    identity = find(client, options.id)
    try:
        return _LogReader(options, client, screen, identity).run()
    except KeyboardInterrupt:
        if options.follow:
            _left_alone(screen, identity)
        raise


def phase(job: Mapping[str, Any]) -> object:
    """Return a job's phase, which distinguishes starting from running jobs.

    An older portal has only the state.
    """
    return job.get("phase") or job["state"]


def find(client: Transport, text: str) -> str:
    return find_id(client, text, "/jobs", "job")


class _LogReader:
    """Prints a log window by window, lease after lease."""

    def __init__(
        self, options: argparse.Namespace, client: Transport, screen: Terminal, identity: str
    ) -> None:
        self._options, self._client, self._screen = options, client, screen
        self._path = f"/jobs/{part(identity)}"
        self._lease: int | None = options.lease
        self._offset = 0
        self._idle = 0

    def run(self) -> int:
        while True:
            # Checked before the next window is read, so that this window has all output of an ended
            # job.
            ended = self._options.follow and self._job_ended()
            window = self._window()
            if self._print(window):
                continue
            if not self._options.follow:
                return 0
            if window["complete"] and self._next_lease():
                continue
            if ended and (window["complete"] or self._lease is None):
                return 0
            self._rest()

    def _window(self) -> Any:
        window = self._client.get(
            f"{self._path}/logs", lease=self._lease, offset=self._offset, limit=LOG_BYTES
        )
        if self._lease is None:
            self._lease = window["lease"]
            if self._lease is not None and self._lease > 1:
                self._screen.note(f"lease {self._lease}; earlier leases: --lease N")
        return window

    def _print(self, window: Any) -> bool:
        """Print a window; return whether it advanced, so that more may be available."""
        if self._screen.writes_json:
            if window["text"] or not self._options.follow:
                self._screen.json(window)
        elif window["offset"] > self._offset:
            self._screen.note(f"({window['offset'] - self._offset} bytes were not kept)")
        if not self._screen.writes_json:
            self._screen.write(inert_lines(window["text"]))
        moved = int(window["next_offset"]) > self._offset
        self._offset = max(self._offset, int(window["next_offset"]))
        self._idle = 0 if moved else self._idle
        return moved

    def _next_lease(self) -> bool:
        """Go to the next lease, if there is one, without skipping any."""
        if self._options.lease is not None:
            return False
        newest = self._client.get(f"{self._path}/logs", offset=0, limit=1)["lease"]
        if newest is None or (self._lease is not None and newest <= self._lease):
            return False
        self._lease = newest if self._lease is None else self._lease + 1
        self._offset = 0
        self._screen.note(self._screen.style(f"-- lease {self._lease} --", "dim", err=True))
        return True

    def _job_ended(self) -> bool:
        return self._client.get(self._path)["state"] in TERMINAL_STATES

    def _rest(self) -> None:
        self._client.pause(POLL_S[min(self._idle, len(POLL_S) - 1)])
        self._idle += 1


def _dry_run(client: Transport, screen: Terminal, body: dict[str, Any]) -> int:
    answer = client.post("/jobs/dry-run", body, repeatable=True)
    if not screen.answered(answer):
        word = (
            screen.style("feasible", "green")
            if answer["feasible"]
            else screen.style(f"not feasible ({inert(answer.get('reason_code'))})", "red")
        )
        screen.line(word)
        lines = [inert(answer.get(name) or "") for name in ("detail", "note")]
        for line in filter(None, [*lines, preview_line(answer.get("deadline_answer"))]):
            screen.line(line)
        if answer.get("price") is not None and answer.get("reason_code") not in NEVER_STARTS:
            prices = dict.fromkeys((answer["price"], answer.get("price_after", answer["price"])))
            text = ", then ".join(map(inert, prices))
            screen.line(f"price {text} {inert(answer.get('currency', ''))}")
    return 0 if answer["feasible"] else DID_NOT_SUCCEED


def _wait(client: Transport, screen: Terminal, job: Any) -> int:
    identity, seen, asked = str(job["id"]), None, 0
    try:
        while True:
            if phase(job) != seen:
                seen, asked = phase(job), 0
                screen.step(f"{when(job.get('started_at'))} {inert(seen)}".strip())
            if seen in TERMINAL_STATES:
                break
            client.pause(POLL_S[min(asked, len(POLL_S) - 1)])
            asked += 1
            job = client.get(f"/{_noun(job)}s/{part(identity)}")
    except KeyboardInterrupt:
        _left_alone(screen, identity, _noun(job))
        raise
    _print(screen, job)
    return 0 if seen == "succeeded" else DID_NOT_SUCCEED


def _noun(job: Mapping[str, Any]) -> str:
    return "sweep" if "counts" in job else "job"


def _left_alone(screen: Terminal, identity: str, noun: str = "job") -> None:
    screen.note(f"\nThe {noun} goes on. To end it: evenshare {noun} cancel {inert(identity)}")


def _next_steps(screen: Terminal, identity: str) -> None:
    if screen.is_wide:
        for verb in ("logs --follow", "why"):
            name, _, option = verb.partition(" ")
            command = f"  evenshare job {name} {inert(identity)[:8]} {option}".rstrip()
            screen.note(screen.style(command, "dim", err=True))


def _print(screen: Terminal, job: Any) -> None:
    if screen.answered(job):
        return
    if _noun(job) == "sweep":
        sweeps.print_sweep(screen, job)
        return
    lines = [
        ("id", inert(job["id"])),
        ("state", screen.state(phase(job))),
        *facts(job),
    ]
    screen.pairs([(name, value) for name, value in lines if value])
