"""Files of a statement: the portal's responses, each complete list under a fixed name.

| name | response of |
|---|---|
| `statement.json` | the request: `pool`, `tenant`, `since`, `until` |
| `usage.json`, `entries.json` | all pages of `GET /usage` and `GET /entries` |
| `income.json`, `idle.json` | all pages of `GET /income`: its `results`, its `idle` |
| `prices.json` | `GET /prices/<pool>/<gpu_type>`, back to the oldest round of a row |
| `records.json` | the records from the first round of the rows to the last, without gaps |
| `chain.json`, `inclusion.json`, `consistency.json` | as in `evenshare round verify` |
| `names/<day>.json`, `bundles/<round>.json` | the same, for the rounds of the rows |
| `no-rounds.json` | why there are no rounds, or "" |
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

from evenshare.errors import UnreachableError, UsageError

from .api import NO_PORTAL, Transport, part
from .terminal import Terminal
from .verify_files import (
    RECORDS,
    Files,
    fetch_bundle,
    fetch_inclusion,
    fetch_names,
    fetch_records,
)

ASKED = "statement.json"
LISTS = ("usage", "income", "idle", "prices", "entries")
PAGE = 200
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def list_file(name: str) -> str:
    return f"{name}.json"


def fetch_statement(
    client: Transport, screen: Terminal, files: Files, asked: dict[str, str]
) -> dict[str, list[dict[str, Any]]]:
    """Fetch all data of a statement's recomputation, except the rounds."""
    time = {key: asked[key] for key in ("tenant", "pool", "since", "until") if asked.get(key)}
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in LISTS}
    for name in ("usage", "income", "entries"):
        for page in _pages(client, f"/{name}", **time):
            rows[name] += page["results"]
            rows["idle"] += page.get("idle", [])
            screen.progress(f"downloading {name}: {len(rows[name])} rows")
    for gpu_type, oldest in _oldest_rounds(rows).items():
        path = f"/prices/{part(time['pool'])}/{part(gpu_type)}"
        for page in _pages(client, path, until=time["until"]):
            rows["prices"] += page["results"]
            screen.progress(f"downloading prices: {len(rows['prices'])} rows")
            if any(row["valid_from_round"] <= oldest for row in page["results"]):
                break
    for name in LISTS:
        files.write_json(list_file(name), rows[name])
    files.write_json(ASKED, asked)
    screen.progress("")
    return rows


def fetch_rounds(
    client: Transport,
    screen: Terminal,
    files: Files,
    wanted: set[int],
    *,
    pool: str,
    log: tuple[int, int],
) -> None:
    """Fetch the records, their proofs, the bundles and the names of the rounds that rows name.

    `log` has the newest round of the pool's log and the size of its head, which is in `files`.
    Later rounds are left out. All records in between are fetched, because each record names the one
    before.
    """
    newest, size = log
    first, last = min(wanted), min(max(wanted), newest)
    records = fetch_records(client, pool, first, last)
    if not records:
        # If the rows are older than the log, its first record shows it.
        path = f"/chain/{part(pool)}/records"
        records = client.get(path, first=first, last=newest)["results"][:1]
    records = [row for row in records if row["index"] < size]
    files.write_json(RECORDS, records)
    if records:
        number = json.loads(records[-1]["record"])["round"]
        fetch_inclusion(client, files, pool, number, size)
    named = [row for row in map(_numbered, records) if row[0] in wanted]
    for count, (number, _) in enumerate(named, start=1):
        screen.progress(f"downloading round {count} of {len(named)}")
        fetch_bundle(client, files, pool, number)
    for day in sorted({day for _, day in named}):
        fetch_names(client, files, pool, day)
    screen.progress("")


def only_pool(client: Transport) -> str:
    pools = [str(pool["name"]) for pool in client.get("/pools")["results"]]
    if len(pools) != 1:
        raise UsageError(f"give --pool: {', '.join(pools) or 'you have access to none'}")
    return pools[0]


def read_lists(files: Files) -> dict[str, Any]:
    return {name: read_json(files, list_file(name)) for name in LISTS}


def read_json(files: Files, name: str) -> Any:
    data = files.read(name)
    if data is None:
        raise UsageError(f"{files.folder} has no {name}; --save-dir of a statement makes it")
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise UsageError(f"{files.folder / name} is damaged: it is not JSON") from None


def rounds_of(rows: dict[str, list[dict[str, Any]]]) -> set[int]:
    named = [row.get("round") for name in ("usage", "income") for row in rows[name]]
    for row in late_starts_of(rows):
        named += [row.get("promised_round"), row.get("round")]
    return {number for number in named if isinstance(number, int)}


def late_starts_of(rows: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the late starts that the operator credited; older portals return none."""
    late = [row.get("late_start") for row in rows["entries"]]
    return [row for row in late if isinstance(row, dict)]


def _oldest_rounds(rows: dict[str, list[dict[str, Any]]]) -> dict[str, int]:
    oldest: dict[str, int] = {}
    for row in (*rows["usage"], *rows["income"]):
        if isinstance(row.get("round"), int):
            known = oldest.get(row["gpu_type"], row["round"])
            oldest[row["gpu_type"]] = min(known, row["round"])
    return oldest


def _pages(client: Transport, path: str, **query: str) -> Iterator[dict[str, Any]]:
    """Yield all pages of a list."""
    cursor: dict[str, str] = {}
    seen: set[str] = set()
    while True:
        page = client.get(path, **query, **cursor, limit=PAGE)
        if not isinstance(page, dict) or not isinstance(page.get("results"), list):
            raise UnreachableError(NO_PORTAL)
        yield page
        if not page.get("next"):
            return
        cursor = {"cursor": str(page["next"])}
        if cursor["cursor"] in seen:
            raise UnreachableError("the portal repeats the same page")
        seen.add(cursor["cursor"])


def _numbered(row: dict[str, Any]) -> tuple[int, str]:
    """Return the round of a record and its UTC day in pool time; names are stored by day."""
    record = json.loads(row["record"])
    day = (_EPOCH + timedelta(microseconds=record["at_us"])).date().isoformat()
    return record["round"], day
