"""Test every number and date of the site's inputs at its limits: refused or accepted, never a 500.

Accepted values must also be readable: the next round runs, and the pages show them. The test has
turns (`tests/functional/turns.py`): each turn tries another quarter of the extreme values on every
field.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings

from billing.ledger import open_accounts, open_book
from portal.site.api import document
from scheduling.models import PoolClock
from tenants.models import Membership, QuotaChangeRequest, RateBucket
from tenants.transparency import round_log
from tenants.transparency.log import root
from tests.functional.api_stage import ApiStage
from tests.functional.extremes import (
    FEW,
    INSTANTS,
    JSON_NUMBERS,
    NUMBERS,
    OF_A_FORM,
    Forms,
    extremes_of,
    leaves,
    replaced,
    value_at,
)
from tests.functional.logs import log_rounds
from tests.functional.operate_stage import LATER, SOON, operate_stage, tag
from tests.functional.turns import TURNS, dealt, some_turns

PREFIX = "/api/v1/"
# URLs that only a tenant's managers may change.
MANAGERS = re.compile(r"^(transfers|quota-requests)|/(sharing|offers)/")


@pytest.fixture
def stage(committed_db: str, settings: Settings, tmp_path: Path) -> ApiStage:
    assert committed_db
    settings.LOG_KEYS_DIR = str(tmp_path / "log-keys")
    stage = operate_stage()
    stage.person("mia", "aa", Membership.Role.MANAGER)
    stage.cluster.profile("aa", "net", v100=1000)
    wish = request_bodies(stage.pool)["post", "quota-requests"]
    assert stage.post("quota-requests", wish, as_="mia").status_code == 201
    open_accounts(open_book("main"), [row.pk for row in stage.cluster.tenants.values()])
    for tenant in ("aa", "bb", "aa"):
        stage.job(tenant)
    stage.cluster.rounds(3, every_s=10)
    log_rounds(stage.cluster.pool)
    return stage


# Optional fields of a job.
SAID: dict[str, Any] = {
    "max_price": "1", "weight": 1, "environment": {"A": "1"}, "cpus": 8, "memory_mb": 1024,
    "job_class": "soft_slo", "deadline": "2h", "deadline_steps": ["100:100", "150:20"],
    "estimate_s": 60, "iterations": 9, "stop_when": "loss<=0.5",
}  # fmt: skip


def good_bodies(stage: ApiStage) -> dict[tuple[str, str], Any]:
    """Return a valid body for each operation that takes one."""
    pool, spec = stage.pool, stage.spec(**SAID)
    draft = {"tenant": "aa", "gpu_type": "v100", "gpus": 3, "until": LATER}
    reason = {"reason": "why"}
    return {
        **job_bodies(spec),
        **people_bodies(),
        **request_bodies(pool),
        ("post", "operate/maintenance"): {
            "pool": pool, "nodes": ["n0000"], "starts_at": SOON, "ends_at": LATER,
        },
        ("post", "operate/nodes"): {
            "pool": pool, "name": "extra", "gpu_type": "v100", "gpus": 8, "cpus": 64,
            "memory_mb": 1024,
        },
        ("patch", "operate/nodes/{name}/{node}"): {"cpus": 64, "memory_mb": 1024},
        ("post", "operate/nodes/{name}/{node}/drain"): reason,
        ("post", "operate/nodes/{name}/{node}/resume"): reason,
        ("patch", "operate/pools/{name}"): {
            "prices": {"v100": {"base": "1", "theta": "2"}}, "options": {"alpha": 1}, "grace_s": 5,
        },
        ("post", "operate/pools/{name}/losses/accept"): reason,
        ("post", "operate/pools/{name}/overdue/{uid}/{number}/end"): {
            "processes": "gone", **reason,
        },
        ("post", "operate/pools/{name}/pause"): reason,
        ("post", "operate/pools/{name}/resume"): reason,
        ("post", "operate/pools/{name}/scale"): {"scale": 1},
        ("put", "operate/quotas/{name}/{slug}/{gpu_type}"): {
            "gpus": 3, "from": SOON, "until": LATER, "borrow_limit": 1, "lend_limit": 1,
        },
        ("post", "operate/quotas/preview"): {"pool": pool, "quotas": [draft], "from": SOON},
        ("post", "operate/tenants"): {"slug": "cc", "name": "C", "initials": "c"},
        ("put", "pools/{name}/profiles/{slug}/{profile}"): {
            "speeds": {"v100": 1}, "priority": 1,
        },
        ("put", "pools/{name}/sharing/{slug}"): {"max_price": "1"},
        ("put", "pools/{name}/sharing/{slug}/{gpu_type}"): {
            "mode": "LEND_AND_BORROW", "borrow_limit": 1, "lend_limit": 1, "by_offer": True,
        },
        ("post", "pools/{name}/offers/{slug}"): {
            "gpu_type": "v100", "gpus": 1, "floor": "0.5", "until": LATER,
        },
        ("post", "transfers"): {"to": "bb", "amount": "1", **reason},
        ("post", "operate/allowances"): {"tenant": "aa", "amount": "1", "name": "one", **reason},
        ("post", "operate/transfers/{uid}/approve"): {"answer": "yes"},
        ("post", "operate/transfers/{uid}/refuse"): {"answer": "no"},
        ("put", "operate/credit/{slug}/{book}"): {
            "credit_limit": "10", "budget_amount": "5", "budget_period": "custom",
            "budget_action": "warn", "budget_from": "2030-01-01T00:00:00Z",
            "budget_until": "2031-01-01T00:00:00Z", **reason,
        },
        ("post", "chain/{name}/verifications"): {
            "kind": "rounds", "size": 2, "root": root(round_log(pool), 2).hex(), "first": 1,
            "last": 2, "checked": 2, "findings": 0, "client": "evenshare 1.0",
        },
        ("post", "tokens"): {"username": "nobody", "password": "none", "days": 1},
    }  # fmt: skip


def job_bodies(spec: dict[str, Any]) -> dict[tuple[str, str], Any]:
    """Return the bodies about jobs."""
    return {
        ("post", "jobs"): spec,
        ("post", "jobs/bulk"): {"jobs": [spec]},
        ("post", "jobs/dry-run"): spec,
        ("post", "jobs/actions"): {"action": "cancel", "jobs": ["0"]},
        ("post", "jobs/{uid}/priority"): {"priority": -1},
        ("post", "sweeps"): {**spec, "array": "0-1%1", "matrix": {"lr": ["1", "2"]}},
    }  # fmt: skip


def request_bodies(pool: str) -> dict[tuple[str, str], Any]:
    """Return the bodies about requests for quota."""
    wish = {"pool": pool, "gpu_type": "v100", "gpus": 5, "reason": "why"}
    return {
        ("post", "quota-requests"): {**wish, "until": LATER, "tenant": "aa"},
        ("post", "operate/quota-requests/{uid}/approve"): {"gpus": 3, "answer": "yes"},
        ("post", "operate/quota-requests/{uid}/decline"): {"answer": "no"},
    }


def people_bodies() -> dict[tuple[str, str], Any]:
    """Return the bodies about people and their messages."""
    return {
        ("post", "subscriptions"): {
            "tenant": "aa", "channel": "webhook", "address": "https://example.org/hook",
            "kinds": ["job_ended"], "jobs": "mine", "tag": "one", "zone": "Europe/Berlin",
        },
        ("post", "tenants/{slug}/invitations"): {"role": "member", "note": "one"},
        ("patch", "tenants/{slug}/members/{username}"): {"role": "member"},
        ("put", "pools/{name}/people/{slug}"): {"people": "equal"},
    }  # fmt: skip


def seen_of(path: str, pool: str) -> str:
    """Return the source of an edit's ETag, or "" if the edit needs none."""
    parts = path.split("/")
    if parts[0] != "operate" or path.endswith("preview"):
        return ""
    if parts[1] in ("allowances", "transfers"):
        return ""
    if parts[1] == "credit":
        return "operate/credit/aa/main"
    kind = "quotas" if parts[1] == "quota-requests" else parts[1]
    if kind in ("quotas", "nodes", "maintenance"):
        return f"operate/{kind}?pool={pool}"
    if "overdue" in parts:
        return f"operate/pools/{pool}/overdue"
    return f"operate/pools/{pool}" if parts[1] == "pools" else f"operate/{parts[1]}"


class Sender:
    """Sends requests as the users with the most rights, and counts the answers."""

    def __init__(self, stage: ApiStage) -> None:
        self.stage = stage
        self.statuses: Counter[int] = Counter()
        self.failures: list[str] = []
        self._tags: dict[str, str] = {}

    def send(self, method: str, path: str, body: bytes | None = None, *, seen: str = "") -> Any:
        """Call a URL; request a new ETag if it is outdated."""
        as_ = "otto" if path.startswith("operate") else "ada"
        as_ = "mia" if MANAGERS.search(path) else as_
        if seen and seen not in self._tags:
            self._tags[seen] = tag(self.stage, seen)
        headers = {"If-Match": self._tags[seen]} if seen else {}
        answer = self.stage.call(method.upper(), path, body, as_=as_, **headers)
        if answer.status_code < 300:
            self._tags.clear()
        self.statuses[answer.status_code] += 1
        if answer.status_code >= 500:
            self.failures.append(f"{method} {path} {(body or b'')[:300]!r}: {answer.status_code}")
        return answer


def filled(path: str, stage: ApiStage) -> str:
    rows = QuotaChangeRequest.objects if "quota-requests" in path else stage.cluster.pool.jobs
    known = {
        "name": stage.pool, "slug": "aa", "node": "n0001", "gpu_type": "v100", "profile": "net",
        "number": "1", "book": "main", "offer": "00000000-0000-4000-8000-000000000000",
        "uid": str(rows.order_by("id")[0].uid), "path": "out.txt",
        "sweep": "00000000-0000-4000-8000-000000000000", "username": "ada",
    }  # fmt: skip
    return path.format(**known)


OF_THE_API = some_turns(1)


class TestApi:
    @pytest.mark.parametrize("turn", OF_THE_API)
    def test_extreme_body_values_never_fail_and_rounds_continue(
        self, stage: ApiStage, turn: int
    ) -> None:
        sender, good = Sender(stage), good_bodies(stage)
        schemas = document()["components"]["schemas"]
        asked = {
            (method, path.removeprefix(PREFIX)): operation
            for path, operations in document()["paths"].items()
            for method, operation in operations.items()
            if "requestBody" in operation
        }
        assert set(asked) == set(good), "give this operation a body that is right"
        for (method, path), operation in asked.items():
            content = operation["requestBody"]["content"]["application/json"]
            fields = schemas[content["schema"]["$ref"].rpartition("/")[2]]["properties"]
            body = good[method, path]
            places = [*leaves(body), *((name,) for name in fields if name not in body)]
            address, seen = filled(path, stage), seen_of(path, stage.pool)
            RateBucket.objects.all().delete()
            for row, place in enumerate(places):
                wrong = json.dumps(replaced(body, place, "@"))
                present = value_at(body, place)
                texts = extremes_of(str(place[-1]), present)
                numbers = JSON_NUMBERS if texts is NUMBERS else FEW
                # A number in a JSON string is refused before it is parsed.
                texts = FEW if isinstance(present, int) else texts
                for value in dealt((*numbers, *map(json.dumps, texts)), row, turn):
                    raw = wrong.replace('"@"', value).encode()
                    sender.send(method, address, raw, seen=seen)
            PoolClock.objects.update(paused=False)
            self.goes_on(stage, f"{method} {path}")
        assert not sender.failures
        assert sender.statuses[400] > 300 // TURNS
        assert sender.statuses[201] + sender.statuses[200] > 50 // TURNS, sender.statuses

    def goes_on(self, stage: ApiStage, after: str) -> None:
        """Run a round, and read the lists that show the accepted values."""
        try:
            stage.cluster.round(after_s=20)
        except Exception as error:
            raise AssertionError(f"no round after {after}") from error
        for path in ("jobs", f"pools/{stage.pool}", f"operate/quotas?pool={stage.pool}"):
            assert stage.get(path, as_="otto").status_code == 200, (after, path)

    @pytest.mark.parametrize("turn", OF_THE_API)
    def test_extreme_query_parameters_never_fail(self, stage: ApiStage, turn: int) -> None:
        sender, row = Sender(stage), 0
        for path, operations in document()["paths"].items():
            for parameter in operations.get("get", {}).get("parameters", []):
                name, place = parameter["name"], path.removeprefix(PREFIX)
                row += 1
                for value in dealt((*NUMBERS, *INSTANTS[:2]), row, turn):
                    if parameter["in"] == "query":
                        sender.send("get", f"{filled(place, stage)}?{name}={value}")
                    else:
                        sender.send("get", filled(place.replace(f"{{{name}}}", value), stage))
        assert not sender.failures
        assert sender.statuses[400] > 50 // TURNS, sender.statuses


# Numbers and names in URLs: forms that differ only in these are the same form.
NAMES = re.compile(r"/(pool-\d+|aa|bb|n\d{4}|[0-9a-f-]{36}|\d+)(?=/|$)")
PAGES_MAX = 120
# A form accepts no more than the API's body and takes longer, so forms are tried in one turn only.
OF_FORMS = some_turns(1)


class TestForms:
    @pytest.mark.parametrize("who", ["otto", "max"])
    @pytest.mark.parametrize("turn", OF_FORMS)
    def test_extreme_form_values_never_fail(
        self, stage: ApiStage, turn: int, who: str, settings: Settings
    ) -> None:
        """Try each number and date of the forms on all linked pages, one at a time."""
        client = Client(raise_request_exception=False)
        client.force_login(stage.people[who])
        settings.PENDING_JOBS_MAX = 100_000
        forms = found_forms(client, f"/pools/{stage.pool}/", "/t/aa/", "/operate/")
        failures, row, statuses = [], 0, Counter[int]()
        for method, action, fields in forms:
            for name, value in one_of_each(fields).items():
                row += 1
                for extreme in dealt(extremes_of(name, value)[:OF_A_FORM], row, turn):
                    RateBucket.objects.all().delete()
                    answer = getattr(client, method)(action, fields | {name: extreme})
                    statuses[answer.status_code] += 1
                    if answer.status_code >= 500:
                        failures.append(f"{method} {action} {name}={extreme!r} (was {value!r})")
        assert not failures
        assert len(forms) > (15 if who == "otto" else 5), forms
        stage.cluster.round(after_s=20)


def one_of_each(fields: dict[str, str]) -> dict[str, str]:
    """Keep one of the fields that differ only by a number, such as `gpus-7-1` and `gpus-8-1`."""
    kinds = {re.sub(r"\d+", "#", name): name for name in fields}
    return {name: fields[name] for name in kinds.values() if name != "csrfmiddlewaretoken"}


def found_forms(client: Client, *begin: str) -> list[tuple[str, str, dict[str, str]]]:
    """Return the forms of all linked pages, one of each kind."""
    waiting, visited = list(begin), set[str]()
    forms: dict[tuple[object, ...], tuple[str, str, dict[str, str]]] = {}
    while waiting and len(visited) < PAGES_MAX:
        address = waiting.pop(0)
        kind = NAMES.sub("/#", address)
        if kind in visited or address.startswith(("/static/", "/logout/", "/api/", "/demo/")):
            continue
        visited.add(kind)
        answer = client.get(address)
        if answer.status_code != 200 or "html" not in answer["Content-Type"]:
            continue
        page = Forms(answer.content.decode(), address)
        path = address.partition("?")[0]
        waiting += sorted(path + one if one.startswith("?") else one for one in page.links)
        for method, action, fields in page.forms.values():
            if not action.startswith(("/logout/", "/demo/")):
                forms.setdefault(
                    (method, NAMES.sub("/#", action), *sorted(fields)), (method, action, fields)
                )
    return list(forms.values())
