"""Benchmark of the size and time of twelve pages, as a browser gets them, on loopback.

Run `python -m benchmarks.pages_http URL` on a running demo (`make run`). It signs in as the demo's
operator and as its manager. For each page it measures the HTML, raw and as sent. It also measures
all files of a first load: HTML, style sheet, scripts and fonts. The time of the HTML is the median
of `TIMES`. The plain method requests the same page without compression, in the same run.
"""

import gzip
import re
import statistics
import sys
import time
import urllib.parse
from dataclasses import dataclass
from http.client import HTTPConnection

PASSWORD = "evenshare-demo"  # noqa: S105 - of the demo, printed at its start
TIMES = 7
GOAL_KB = 150
ASSET = re.compile(r'(?:href|src)="(/static/[^"]+)"')
FONT = re.compile(r'url\(["\']?([^"\')]+\.woff2)')


@dataclass(frozen=True, slots=True)
class Reply:
    """A response and its time."""

    status: int
    headers: dict[str, str]
    sent: bytes
    seconds: float

    @property
    def text(self) -> str:
        """Return the uncompressed body."""
        packed = self.headers.get("content-encoding") == "gzip"
        return (gzip.decompress(self.sent) if packed else self.sent).decode(errors="replace")


class Visitor:
    """A browser's connection with cookies, kept alive."""

    def __init__(self, host: str, port: int) -> None:
        self._connection = HTTPConnection(host, port, timeout=60)
        self._cookies: dict[str, str] = {}

    def get(self, path: str, **headers: str) -> Reply:
        return self._ask("GET", path, None, {"Accept-Encoding": "gzip", **headers})

    def pause(self) -> None:
        """Close the connection before the server does; the next request opens a new one."""
        self._connection.close()

    def sign_in(self, username: str) -> None:
        token = re.search(r'csrfmiddlewaretoken" value="(\w+)"', self.get("/login/").text)
        if token is None:
            raise SystemExit("the log-in page has no form")
        form = {"csrfmiddlewaretoken": token[1], "username": username, "password": PASSWORD}
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        self._ask("POST", "/login/", urllib.parse.urlencode(form), headers)

    def _ask(self, method: str, path: str, body: str | None, headers: dict[str, str]) -> Reply:
        cookie = "; ".join(f"{name}={value}" for name, value in self._cookies.items())
        began = time.perf_counter()
        self._connection.request(method, path, body, {**headers, "Cookie": cookie})
        response = self._connection.getresponse()
        sent = response.read()
        seconds = time.perf_counter() - began
        for line in response.headers.get_all("Set-Cookie") or ():
            name, _, rest = line.partition("=")
            self._cookies[name] = rest.partition(";")[0]
        known = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, known, sent, seconds)


def main() -> None:
    """Measure the pages of the demo at the given URL."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: python -m benchmarks.pages_http http://127.0.0.1:8000")
    at = urllib.parse.urlsplit(sys.argv[1])
    host, port = at.hostname or "127.0.0.1", at.port or 80
    operator = Visitor(host, port)
    operator.sign_in("otto")
    manager = Visitor(host, port)
    manager.sign_in("mara")
    home = manager.get("/t/").headers.get("location") or ""
    pages = _pages(manager, home)
    print("                     HTML, kB       first load, kB    milliseconds")
    print("page               raw    sent        raw     sent    sent    plain")
    heaviest = 0.0
    for name, path in pages:
        visitor = operator if name.startswith("operator") else manager
        heaviest = max(heaviest, _line(visitor, name, path))
    print(f"goal: at most {GOAL_KB} kB on the first load; most measured {heaviest:.0f} kB")


def _pages(manager: Visitor, home: str) -> list[tuple[str, str]]:
    """Return the URLs of the pages, found by following links."""
    front = manager.get("/")
    slug = re.search(r'href="/t/([\w-]+)/', front.text)
    if slug is None:
        front = manager.get(front.headers.get("location", home))
        slug = re.search(r'href="/t/([\w-]+)/', front.text)
    if slug is None:
        raise SystemExit("no page of a tenant is linked")
    tenant = f"/t/{slug[1]}/"
    jobs = manager.get(f"{tenant}jobs/").text
    pool = re.search(r'href="/pools/([\w-]+)/', jobs)
    if pool is None:
        raise SystemExit("no pool is linked")
    place = f"/pools/{pool[1]}/"
    latest = re.search(r'data-round="(\d+)"', jobs)
    job = re.search(r'href="(/jobs/[0-9a-f-]{36}/)"', jobs)
    pages = [
        ("front", "/?tour"),
        ("overview", tenant),
        ("jobs", f"{tenant}jobs/"),
        ("submit", f"{tenant}jobs/new/"),
        ("pool", place),
        ("rounds", f"{place}rounds/"),
        ("prices", f"{place}prices/"),
        ("ledger", f"{tenant}ledger/"),
        ("operator", "/operate/"),
        ("operator: health", f"/operate{place}health/"),
    ]
    if latest is not None:
        pages.append(("a round", f"{place}rounds/{latest[1]}/"))
    if job is not None:
        pages.append(("a job", job[1]))
    return pages


def _line(visitor: Visitor, name: str, path: str) -> float:
    """Print a page's figures; return the kilobytes of its first load."""
    visitor.pause()
    page = visitor.get(path)
    if page.status != 200:
        raise SystemExit(f"{path}: {page.status}")
    fetched = [page, *_assets(visitor, page)]
    raw = sum(_raw(one) for one in fetched)
    sent = sum(len(one.sent) for one in fetched)
    spans = [visitor.get(path).seconds for _ in range(TIMES)]
    plain = [visitor.get(path, **{"Accept-Encoding": "identity"}).seconds for _ in range(TIMES)]
    print(
        f"{name:<17}{_raw(page) / 1000:6.1f} {len(page.sent) / 1000:7.1f}"
        f"   {raw / 1000:8.1f} {sent / 1000:8.1f}"
        f"  {statistics.median(spans) * 1000:6.0f}   {statistics.median(plain) * 1000:6.0f}"
    )
    return sent / 1000


def _assets(visitor: Visitor, page: Reply) -> list[Reply]:
    """Return the files linked in the head, and all fonts of the style sheet."""
    paths = dict.fromkeys(ASSET.findall(page.text))
    replies = {path: visitor.get(path) for path in paths}
    for path, reply in list(replies.items()):
        if path.endswith(".css"):
            for font in FONT.findall(reply.text):
                address = urllib.parse.urljoin(path, font)
                if address not in replies:
                    replies[address] = visitor.get(address)
    return list(replies.values())


def _raw(reply: Reply) -> int:
    packed = reply.headers.get("content-encoding") == "gzip"
    return len(gzip.decompress(reply.sent)) if packed else len(reply.sent)


if __name__ == "__main__":
    main()
