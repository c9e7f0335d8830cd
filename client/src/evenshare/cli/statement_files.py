"""Files of a statement: what the portal answered, each list whole under a fixed name.

| name | answer of |
|---|---|
| `statement.json` | what was asked for: `pool`, `tenant`, `since`, `until` |
| `usage.json`, `entries.json` | all pages of `GET /usage` and `GET /entries` |
| `income.json`, `idle.json` | all pages of `GET /income`: its `results`, its `idle` |
| `prices.json` | `GET /prices/<pool>/<gpu_type>`, back to the oldest round of a row |
| `chain.json` | `GET /chain/<pool>`: the head that was shown meanwhile |
| `records.json` | the records of the rounds that rows name, of `GET /chain/<pool>/records` |
| `names/<day>.json`, `bundles/<round>.json` | as `evenshare round verify` keeps them |
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

from .api import ApiError, Client, UnreachableError, part
from .config import UsageError
from .terminal import Terminal
from .verify_files import (
    RECORDS,
    RECORDS_AT_ONCE,
    Files,
    fetch_bundle,
    fetch_chain,
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
    client: Client, screen: Terminal, files: Files, asked: dict[str, str]
) -> dict[str, list[dict[str, Any]]]:
    """Everything that a statement is recomputed from, but the rounds."""
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
    client: Client, screen: Terminal, files: Files, pool: str, wanted: set[int]
) -> str:
    """Records, bundles and names of the rounds that rows name; why there are none, or "".

    Rounds that are not in the log yet are left out.
    """
    if not wanted:
        return ""
    try:
        newest = fetch_chain(client, files, pool).get("round")
    except ApiError as refused:
        if refused.status != 404:
            raise
        return "the portal publishes no log of the pool's rounds"
    numbers = sorted(number for number in wanted if isinstance(newest, int) and number <= newest)
    records: list[dict[str, Any]] = []
    for first, last in _spans(numbers):
        records += fetch_records(client, pool, first, last)
    files.write_json(RECORDS, records)
    for count, number in enumerate(numbers, start=1):
        screen.progress(f"downloading round {count} of {len(numbers)}")
        fetch_bundle(client, files, pool, number)
    for day in sorted(set(map(_day, records))):
        fetch_names(client, files, pool, day)
    screen.progress("")
    return ""


def only_pool(client: Client) -> str:
    """The only pool of the caller."""
    pools = [str(pool["name"]) for pool in client.get("/pools")["results"]]
    if len(pools) != 1:
        raise UsageError(f"give --pool: {', '.join(pools) or 'there is none for you'}")
    return pools[0]


def read_lists(files: Files) -> dict[str, Any]:
    """The lists of a folder."""
    return {name: read_json(files, list_file(name)) for name in LISTS}


def read_json(files: Files, name: str) -> Any:
    data = files.read(name)
    if data is None:
        raise UsageError(f"{files.folder} has no {name}; --save-dir of a statement makes it")
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise UsageError(f"{files.folder / name} is damaged: it is no JSON") from None


def rounds_of(rows: dict[str, list[dict[str, Any]]]) -> set[int]:
    """The rounds that rows name."""
    named = (row.get("round") for name in ("usage", "income") for row in rows[name])
    return {number for number in named if isinstance(number, int)}


def _oldest_rounds(rows: dict[str, list[dict[str, Any]]]) -> dict[str, int]:
    oldest: dict[str, int] = {}
    for row in (*rows["usage"], *rows["income"]):
        if isinstance(row.get("round"), int):
            known = oldest.get(row["gpu_type"], row["round"])
            oldest[row["gpu_type"]] = min(known, row["round"])
    return oldest


def _pages(client: Client, path: str, **query: str) -> Iterator[dict[str, Any]]:
    """All pages of a list, however many."""
    cursor: dict[str, str] = {}
    seen: set[str] = set()
    while True:
        page = client.get(path, **query, **cursor, limit=PAGE)
        if not isinstance(page, dict) or not isinstance(page.get("results"), list):
            raise UnreachableError("the portal answers, but not as a portal does")
        yield page
        if not page.get("next"):
            return
        cursor = {"cursor": str(page["next"])}
        if cursor["cursor"] in seen:
            raise UnreachableError("the portal answers the same page again and again")
        seen.add(cursor["cursor"])


def _spans(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Few spans that cover sorted numbers: one call may answer hundreds of records."""
    while numbers:
        first = numbers[0]
        among = [number for number in numbers if number < first + RECORDS_AT_ONCE]
        yield first, among[-1]
        numbers = numbers[len(among) :]


def _day(row: dict[str, Any]) -> str:
    """The UTC day of pool time of a record, as names are kept by."""
    at_us = json.loads(row["record"])["at_us"]
    return (_EPOCH + timedelta(microseconds=at_us)).date().isoformat()
