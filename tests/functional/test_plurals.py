"""Test every page of a site with one object of each kind: no "1 GPUs", no "1 were"."""

from __future__ import annotations

import html
import re
from collections import deque

import pytest
from django.test import Client

from evenshare_core.domain.reason_texts import WORDINGS
from scheduling.engine.clock import wall_now
from scheduling.models import PoolClock
from scheduling.selectors.jobs.reasons import why
from tenants.models import Membership, User
from tenants.tokens import Scope, create_token
from tests.factories import cluster
from tests.functional.visitors import visitor

PAGES = 400
NOUNS = (
    *("GPUs", "slots", "jobs", "rounds", "leases", "nodes", "hours", "minutes", "tenants", "terms"),
    *("lines", "types", "renewals", "were", "are", "have", "run", "times", "quotas", "people"),
)
VERBS_OF_ONE = r"is|was|has|does|goes|runs|waits|acts|takes|holds|stands"
VERBS_OF_MANY = r"are|were|have|do|go|run|wait|act|take|hold|stand"
# A version, a price or the number of a round is not a count.
COUNT = r"(?<![\w.,:#/-])(?<!round )(?<!and )"
WRONG = re.compile(
    rf"{COUNT}1 (?:{'|'.join(NOUNS)})\b"
    rf"|{COUNT}1 [a-z]+ (?:{VERBS_OF_MANY})\b"
    rf"|{COUNT}(?:[2-9]|[1-9][\d,]+) [a-z]+s (?:{VERBS_OF_ONE})\b"
)
# A large figure of 1 and its unit, with the figure's note between them.
ONE_OF = re.compile(r'(?s)<p class="fig">\s*<span>(?:<[^>]*>\s*)*1<.{0,3000}?class="unit">([^<]*)')


def text_of(page: str) -> str:
    """Return a page's text, one part per line, without scripts and notes of other numbers."""
    body = re.sub(r"(?s)<(script|style|pre|code|svg).*?</\1>", " ", page)
    body = re.sub(r"</(p|li|td|th|h1|h2|h3|div|dt|dd|tr|option|a|section|button|span)>", "\n", body)
    text = html.unescape(re.sub(r"<[^>]+>", " ", body))
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


def visited(client: Client, *starts: str) -> dict[str, str]:
    """Return all linked pages by URL; none is refused or left out."""
    pages: dict[str, str] = {}
    queue, known = deque(starts), set(starts)
    while queue:
        assert len(known) < PAGES, "links to links without end"
        address = queue.popleft()
        answer = client.get(address, follow=True)
        assert answer.status_code == 200, f"{address}: {answer.status_code}"
        if "text/html" not in answer["Content-Type"]:
            continue
        pages[address] = answer.content.decode()
        for found in re.findall(r'href="(/[^"#]*)', pages[address]):
            link = html.unescape(found)
            if link not in known and not link.startswith(("/static/", "/api/", "/logout")):
                known.add(link)
                queue.append(link)
    return pages


def tokens(name: str, count: int) -> None:
    """Make API tokens, so that a page counts two of them."""
    person = User.objects.get(username=name)
    for number in range(count):
        scopes = frozenset({Scope.JOBS_READ})
        create_token(user=person, name=f"t{number}", scopes=scopes, days=1, now=wall_now())


class TestSingular:
    def test_is_used_for_one_on_every_page(self, committed_db: str) -> None:
        assert committed_db
        lab = cluster({"solo": 1}, nodes=1, gpus=1, lease_s=60, policy="ltgf")
        owner = visitor("ada", lab.tenants["solo"], Membership.Role.MANAGER)
        operator = visitor("eve", site_role=User.SiteRole.OPERATOR)
        tokens("ada", 2)
        tokens("eve", 1)
        lab.submit("solo", 1, 100_000)
        lab.submit("solo", 1, 100_000)
        lab.rounds(8, every_s=10)
        PoolClock.objects.update(anchor_pool=lab.at, anchor_wall=wall_now())
        name = lab.pool.name
        seen = visited(owner, "/t/solo/", "/t/solo/jobs/", "/t/solo/jobs/?state=pending")
        console = visited(operator, "/operate/", f"/operate/pools/{name}/nodes/?drain=n0000")
        assert min(len(seen), len(console)) > 20
        wrong = [
            f"{address}: {line}"
            for address, page in (*seen.items(), *console.items())
            for line in text_of(page).splitlines()
            if WRONG.search(line)
        ]
        wrong += [
            f"{address}: 1 {unit}"
            for address, page in (*seen.items(), *console.items())
            for unit in ONE_OF.findall(page)
            if unit.partition(" ")[0] in NOUNS
        ]
        assert not wrong, "\n".join(sorted({line.split(": ", 1)[1] for line in wrong}))

    @pytest.mark.parametrize("code", WORDINGS)
    @pytest.mark.parametrize("now", [False, True])
    def test_is_used_for_one_in_every_reason(self, code: str, now: bool) -> None:
        names = re.findall(r"\{(\w+)", WORDINGS[code].sentence)
        said = why(code, dict.fromkeys([*names, "free"], 1), now=now)
        assert not WRONG.search(said.sentence)
        assert "{" not in said.sentence
        assert "|" not in said.sentence
