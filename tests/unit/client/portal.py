"""Provide a small fake portal with the REST contract that the client relies on, and its faults."""

from __future__ import annotations

import gzip
import json
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "es_" + "t" * 40
Answer = tuple[int, Any]


@dataclass
class Portal:
    """A portal with jobs in memory; `script` lists the next requests' faults: a status or "cut"."""

    jobs: list[dict[str, Any]] = field(default_factory=list)
    keys: dict[str, tuple[Any, dict[str, Any]]] = field(default_factory=dict)
    usage: dict[str, Any] = field(default_factory=dict)
    logs: dict[int, str] = field(default_factory=dict)
    seen: list[tuple[str, str, dict[str, str], Any]] = field(default_factory=list)
    script: list[int | str] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    prices: list[dict[str, Any]] = field(default_factory=list)
    forecasts: list[dict[str, Any]] = field(default_factory=list)
    queue: list[dict[str, Any]] = field(default_factory=list)
    contribution: dict[str, Any] = field(default_factory=dict)
    income: list[dict[str, Any]] = field(default_factory=list)
    credit: list[dict[str, Any]] = field(default_factory=list)
    reports: list[Any] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    # By path; each request of a file gets at most five bytes.
    files: dict[str, bytes] = field(default_factory=dict)
    versions: list[str] = field(default_factory=list)
    refusal: Answer | None = None
    cursors: bool = False
    takes_phase: bool = True
    rounds: Callable[[list[str], dict[str, str]], Answer] | None = None
    url: str = ""

    def job(self, state: str = "pending", **more: Any) -> dict[str, Any]:
        made = {
            "id": str(uuid.uuid4()), "name": "train", "tenant": "vision", "pool": "local",
            "state": state, "gpus": 2, "gpu_types": [], "submitted_at": "2031-05-04T03:02:01Z",
            "started_at": None, "ended_at": None, "exit_code": None, "reason_code": "",
            "lease": None, "progress": None, "charge": "0.000000", "url": f"{self.url}/jobs/x/",
        } | more  # fmt: skip
        self.jobs.insert(0, made)
        return made

    def answer(self, method: str, path: str, query: dict[str, str], body: Any, key: str) -> Answer:
        words = path.removeprefix("/api/v1/").split("/")
        said: Answer = 404, problem(404, "No such page")
        match (method, *words):
            case ("POST", "tokens"):
                said = self._token(body)
            case (_, "chain" | "rounds", *_) if self.rounds is not None:
                said = self._told(body) if method == "POST" else self.rounds(words, query)
            case ("GET", "pools", *rest):
                said = 200, {"results": self.queue if rest else [], "next": None}
            case ("POST", "jobs"):
                said = self._submit(body, key)
            case ("POST", "jobs", "dry-run"):
                said = 200, self._dry_run(body)
            case ("GET", "jobs"):
                said = self._page(query)
            case ("GET", "prices" | "price-forecasts", *place):
                said = self._prices(words[0], place, query)
            case (_, "credit" | "contribution" | "transfers", *rest):
                said = self._money(words[0], rest, body, key)
            case (_, "jobs", *_):
                said = self._of_job(method, words[1:], query)
        return said

    def _told(self, body: Any) -> Answer:
        """Store the client's verification report, or reject it."""
        self.reports.append(body)
        return self.refusal or (201, body)

    def _prices(self, noun: str, place: list[str], query: dict[str, str]) -> Answer:
        if noun == "price-forecasts" and place == ["local"]:
            return 200, {"results": self.forecasts, "next": None}
        if not place and "limit" not in query:
            return 200, {"results": self.prices, "next": None}
        assert (place, query["since"]) == (["local", "cpu"], "2031-01-01T00:00:00Z")
        return 200, {"results": self.prices[: int(query["limit"])], "next": None}

    def _money(self, noun: str, place: list[str], body: Any, key: str) -> Answer:
        if noun == "transfers":
            return 201, {"id": "5f", "to": body["to"], "amount": body["amount"], "key": key}
        if noun == "credit":
            return 200, {"results": self.credit, "next": None}
        return 200, {"results": self.income, "next": None} if place else self.contribution

    def _token(self, body: Any) -> Answer:
        if body["password"] != "right":
            return 401, problem(401, "Wrong name or password", reason_code="wrong_credentials")
        return 201, {"token": TOKEN, "expires_at": "2031-06-03T00:00:00Z", "scopes": body["scopes"]}

    def _submit(self, body: Any, key: str) -> Answer:
        if key in self.keys:
            before, job = self.keys[key]
            if before != body:
                return 422, problem(422, "Another job", reason_code="idempotency_mismatch")
            return 201, job
        if body["gpus"] > 8:
            error = {"field": "gpus", "reason": "is more than the pool has\x1b[31m", "hint": "8"}
            return 422, problem(422, "Not accepted", reason_code="invalid", errors=[error])
        job = self.job(**{k: v for k, v in body.items() if k in ("pool", "gpus", "name", "tenant")})
        self.keys[key] = (body, job)
        return 201, job

    def _dry_run(self, body: Any) -> dict[str, Any]:
        feasible = body["gpus"] <= 8
        return {
            "feasible": feasible, "reason_code": "" if feasible else "too_large",
            "detail": "It could start now." if feasible else "The pool has 8.",
            "price": "1.250000", "currency": "credits",
            "note": "feasibility, not a reservation",
        }  # fmt: skip

    def _page(self, query: dict[str, str]) -> Answer:
        if "phase" in query and not self.takes_phase:
            return 400, problem(400, "phase is not a parameter of this endpoint")
        found = [
            j
            for j in self.jobs
            if query.get("state") in (None, j["state"])
            and query.get("phase") in (None, j.get("phase", j["state"]))
        ]
        start, limit = int(query.get("cursor", "0")), int(query["limit"])
        # A portal behind a proxy may return such a URL, of which only the query may be used.
        after = f"http://elsewhere.invalid/api/v1/jobs?cursor={start + limit}&limit={limit}"
        after = str(start + limit) if self.cursors else after
        more = after if start + limit < len(found) else None
        return 200, {"results": found[start : start + limit], "next": more}

    def _of_job(self, method: str, words: list[str], query: dict[str, str]) -> Answer:
        job = next((j for j in self.jobs if j["id"] == words[0]), None)
        if job is None:
            return 404, problem(404, "No such job", request_id="r-1")
        match (method, *words[1:]):
            case ("GET",):
                if self.states:
                    job["state"] = self.states.pop(0)
                return 200, job
            case ("POST", "cancel"):
                job["state"] = "cancelled"
                return 200, job
            case ("GET", "why"):
                return 200, {
                    "state": job["state"], "reason_code": "no_free_gpus",
                    "words": "Fewer GPUs are free than the job needs.", "next_step": "Wait.",
                    "numbers": {"free": 1, "needed": 2}, "round": 7,
                    "as_of": "2031-05-04T03:02:01Z", "preempted": job.get("preempted"),
                    "made_way": job.get("made_way", []),
                }  # fmt: skip
            case ("GET", "logs" | "usage" | "metrics" | "files" as what):
                return 200, self._written(what, job, query)
        return 405, problem(405, "Not so")

    def _written(self, what: str, job: dict[str, Any], query: dict[str, str]) -> dict[str, Any]:
        if what == "logs":
            return self._log(job, query)
        rows = [
            {"path": path, "bytes": len(data), "modified_at": None}
            for path, data in self.files.items()
        ]
        files = {"kept": True, "files": rows, "cut": False}
        return {"usage": self.usage, "metrics": self.metrics, "files": files}[what]

    def _log(self, job: dict[str, Any], query: dict[str, str]) -> dict[str, Any]:
        lease = int(query.get("lease", max(self.logs, default=0)))
        text = self.logs.get(lease, "")
        start = int(query.get("offset", "0"))
        piece = text[start : start + min(int(query["limit"]), 40)]
        over = job["state"] in ("succeeded", "failed", "cancelled") or lease < max(self.logs)
        return {
            "lease": lease or None, "offset": start, "next_offset": start + len(piece),
            "total": len(text), "text": piece, "complete": over and start + len(piece) == len(text),
        }  # fmt: skip


def problem(status: int, title: str, **more: Any) -> dict[str, Any]:
    return {"type": "about:blank", "title": title, "status": status, "detail": "", **more}


class Handler(BaseHTTPRequestHandler):
    """A handler that passes requests to the portal, and breaks an answer if a test requests it."""

    portal: Portal

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def _serve(self, method: str) -> None:
        parts = urlsplit(self.path)
        data = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        body = json.loads(data) if data else None
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.portal.seen.append((method, self.path, headers, body))
        if "/files/" in parts.path:
            self._send_part(unquote(parts.path.partition("/files/")[2]))
            return
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        status, answer = self._checked(method, parts.path, query, body, headers)
        fault = self.portal.script.pop(0) if self.portal.script else None
        if fault == "cut":
            # The request is processed, but the answer never arrives.
            self.close_connection = True
            return
        if isinstance(fault, int):
            status, answer = fault, problem(fault, "For a while")
        self._send(status, answer)

    def _send_part(self, path: str) -> None:
        """Send five bytes of a file, or 404, or 416 if it ends before."""
        data = self.portal.files.get(path)
        start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
        if data is None or start >= len(data):
            self._send(404 if data is None else 416, problem(404, "No such file"))
            return
        piece = data[start : start + 5]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start}-{start + len(piece) - 1}/{len(data)}")
        versions = self.portal.versions
        self.send_header("ETag", versions.pop(0) if versions else '"1"')
        self.send_header("Content-Length", str(len(piece)))
        self.end_headers()
        self.wfile.write(piece)

    def _checked(
        self, method: str, path: str, query: dict[str, str], body: Any, headers: dict[str, str]
    ) -> Answer:
        if path != "/api/v1/tokens" and headers.get("authorization") != f"Bearer {TOKEN}":
            return 401, problem(401, "Not logged in", reason_code="not_authenticated")
        return self.portal.answer(method, path, query, body, headers.get("idempotency-key", ""))

    def _send(self, status: int, answer: Any) -> None:
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        if isinstance(answer, bytes) and "gzip" in self.headers.get("Accept-Encoding", ""):
            data = gzip.compress(data, mtime=0)
            self.send_header("Content-Encoding", "gzip")
        if status in (301, 302, 308):
            self.send_header("Location", "http://elsewhere.invalid/")
        self.send_header("Content-Type", "application/problem+json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None: ...


def serve(portal: Portal) -> ThreadingHTTPServer:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"portal": portal}))
    portal.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return server
