"""Send the requests of the REST corpus, and keep the recorded parts of their answers."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from django.db import transaction

from tests.functional.access_table import ASKED_FOR, TABLE
from tests.functional.addresses import fill, is_api, template_of, words_of
from tests.functional.rest_stage import RestStage, seeded

RECORDED = Path(__file__).parents[1] / "golden" / "rest_corpus.json.gz"
# The schema has a separate test, and the pages of `docs` show these answers.
LEFT_OUT = frozenset({"api/v1/schema", "api/v1/docs", "api/v1/docs/<slug:resource>"})
HEADERS = ("Content-Type", "Content-Disposition", "ETag")
STRETCH = "since=2030-01-01T00:00:00Z&until=2030-01-03T00:00:00Z"
# Filters and pages of lists. For a list with `limit`, the test follows the cursors.
MONEY = "tenant={slug}&pool={pool}"
MORE = (
    *(f"api/v1/{name}?{MONEY}&limit=2" for name in ("usage", "income", "entries")),
    *(
        f"api/v1/{name}?{MONEY}&{STRETCH}"
        for name in ("usage", "income", "entries", "contribution", "contribution/lines")
    ),
    f"api/v1/contribution/lines?{MONEY}&limit=1",
    f"api/v1/contribution?{MONEY}&since=2030-01-03T00:00:00Z&until=2030-01-01T00:00:00Z",
    f"api/v1/pools/{{pool}}/revenue-fairness?{STRETCH}",
    "api/v1/usage?tenant={slug}&since=2030-01-01T01:00:00Z&limit=3",
    "api/v1/prices/{pool}/{gpu_type}?limit=1",
    f"api/v1/prices/{{pool}}/{{gpu_type}}?{STRETCH}&limit=2",
    "api/v1/transfers?tenant={slug}&state=refused",
    "api/v1/transfers?state=asked",
    "api/v1/operate/transfers?state=refused",
    "api/v1/jobs?tenant={slug}&pool={pool}&limit=2",
    "api/v1/jobs?tenant={slug}&state=running",
    "api/v1/jobs?tenant={slug}&state=pending&limit=1",
    "api/v1/jobs?phase=running",
    "api/v1/jobs/{job}/logs?lease=1",
    "api/v1/jobs/{job}/logs?limit=4",
    "api/v1/rounds?pool={pool}&limit=2",
    "api/v1/chain/{pool}/records?first=0&last=2",
    "api/v1/chain/{pool}/inclusion?round=1&size=2",
    "api/v1/chain/{pool}/names?day=2030-01-01",
    "api/v1/ledgers/main/chain/records?first=0&last=3",
    "api/v1/pools/{pool}/preemptions?limit=1",
    "api/v1/pools/{pool}/trades?limit=1",
    "api/v1/pools/{pool}/offers/{slug}?limit=1",
    "api/v1/quotas?tenant={slug}&limit=2",
    "api/v1/quota-requests?tenant={slug}&limit=1",
    "api/v1/quota-requests?state=open",
    "api/v1/operate/audit?limit=2",
    "api/v1/operate/nodes?pool={pool}",
    "api/v1/operate/maintenance?pool={pool}",
    # Refused
    "api/v1/usage?tenant={slug}&since=yesterday",
    f"api/v1/entries?{MONEY}&limit=0",
    f"api/v1/income?{MONEY}&cursor=none",
    "api/v1/jobs?state=lost",
    "api/v1/pools/{pool}?page=1",
    # CSV files of the same data
    "t/{slug}/ledger/statement.csv?from=2030-01-01&to=2030-01-02&pool={pool}",
    "t/{slug}/ledger/contribution.csv?from=2030-01-01&to=2030-01-02&pool={pool}",
    "pools/{pool}/prices.csv?from=2030-01-01&to=2030-01-02",
)
VERSIONS = re.compile(r'"versions":\{"evenshare-core":[^}]*\}')
# The maximum number of pages that are requested of a list.
PAGES = 3


class Ask(NamedTuple):
    """A URL and its requester."""

    caller: str
    path: str


def asks(stage: RestStage) -> Iterator[Ask]:
    """Yield every URL of the API with the values and callers of each state, each once."""
    seen: set[Ask] = set()
    for words, callers, of_lists in stage.states.values():
        every = [
            *(Ask(caller, path) for path in _addresses(words) for caller in callers),
            *(Ask(caller, path) for path in _lists(words) for caller in of_lists),
        ]
        for ask in every:
            if ask not in seen:
                seen.add(ask)
                yield ask


def _addresses(words: Mapping[str, str]) -> Iterator[str]:
    for address, route in (*TABLE.items(), *ASKED_FOR):
        if (
            is_api(address)
            and "GET" in route.methods
            and address not in LEFT_OUT
            and words.keys() >= set(words_of(address, route))
        ):
            yield fill(template_of(address, route), words)


def _lists(words: Mapping[str, str]) -> Iterator[str]:
    for template in MORE:
        if words.keys() >= set(re.findall(r"\{(\w+)\}", template)):
            yield "/" + fill(template, words)


def answers(stage: RestStage) -> dict[str, str]:
    """Return each answer by caller and URL."""
    found: dict[str, str] = {}
    for ask in asks(stage):
        path, page = ask.path, 1
        while path and page <= PAGES:
            answer = _asked(stage, Ask(ask.caller, path))
            found[f"{ask.caller} {path}"] = answer
            cursor = _next(answer) if "limit=" in ask.path else ""
            path, page = (f"{ask.path}&cursor={cursor}" if cursor else ""), page + 1
    return found


def _asked(stage: RestStage, ask: Ask) -> str:
    """Return the status, the headers that a client reads, and the body, as text."""
    client = stage.client(ask.caller, api=ask.path.startswith("/api/"))
    # Each request has its seed, so the order of requests does not matter.
    with seeded(f"{ask.caller} {ask.path}"), transaction.atomic():
        answer: Any = client.get(ask.path, headers={"X-Request-Id": "rest-corpus-0001"})
        body = b"".join(answer.streaming_content) if answer.streaming else answer.content
        if answer["Content-Type"].startswith("text/html"):
            body = b"a page"
        transaction.set_rollback(True)
    headers = [f"{name}: {answer[name]}" for name in HEADERS if name in answer]
    return without_versions("\n".join([str(answer.status_code), *headers, "", body.decode()]))


def without_versions(answer: str) -> str:
    """Remove this machine's versions from an answer, and the ETag that depends on them."""
    if not VERSIONS.search(answer):
        return answer
    return re.sub(r"\nETag: .*", "", VERSIONS.sub('"versions":"<versions>"', answer))


def _next(answer: str) -> str:
    status, body = answer[:3], answer.partition("\n\n")[2]
    return (json.loads(body).get("next") or "") if status == "200" else ""


def first_difference(recorded: str, now: str) -> str:
    """Return the first line that differs; JSON is compared by field."""
    old, new = (_lines(text) for text in (recorded, now))
    for before, after in zip(old, new, strict=False):
        if before != after:
            return f"- {before.strip()}\n  + {after.strip()}"
    longer, sign = (old, "-") if len(old) > len(new) else (new, "+")
    rest = longer[min(len(old), len(new)) :]
    return f"{sign} {rest[0].strip()}" if rest else "the same values in other bytes"


def _lines(text: str) -> list[str]:
    head, _, body = text.partition("\n\n")
    with suppress(ValueError):
        body = json.dumps(json.loads(body), indent=1)
    return [*head.splitlines(), *body.splitlines()]


def read() -> dict[str, str]:
    recorded: dict[str, str] = json.loads(gzip.decompress(RECORDED.read_bytes()))
    return recorded


def write(found: Mapping[str, str]) -> None:
    data = json.dumps(found, indent=0, ensure_ascii=False, sort_keys=True).encode()
    RECORDED.write_bytes(gzip.compress(data, 9, mtime=0))
