"""Test the commands of subscriptions: the requests, and the printed lines."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from evenshare.cli.parser import parser
from evenshare.cli.terminal import Terminal
from evenshare.errors import UsageError

UID = "0b54d9a2-9d7c-4a37-9be5-2f6d5d0f7a11"
ROW = {
    "id": UID, "tenant": "vision", "channel": "webhook", "address": "https://x.org/...in",
    "kinds": ["job_ended", "job_failed"], "jobs": "mine", "pool": "local", "tag": "",
    "state": "active",
}  # fmt: skip


@dataclass
class Portal:
    """Record requests, and answer them with one subscription."""

    tenants: tuple[str, ...] = ("vision", "vision")
    rows: list[dict[str, Any]] = field(default_factory=lambda: [ROW])
    sent: list[tuple[str, str, Any]] = field(default_factory=list)
    explain: None = None

    def pages(self, path: str, limit: int | None) -> Iterator[dict[str, Any]]:
        assert (path, limit) == ("/subscriptions", None)
        return iter(self.rows)

    def get(self, path: str) -> dict[str, Any]:
        assert path == "/quotas/use"
        return {"results": [{"tenant": one} for one in self.tenants]}

    def post(self, path: str, body: Any = None, *, repeatable: bool = False) -> dict[str, Any]:
        self.sent.append(("POST", path, body))
        assert repeatable is (body is not None)
        return {**ROW, "secret": "whsec_1"}

    def call(self, method: str, path: str) -> None:
        self.sent.append((method, path, None))


def run(portal: Portal, *words: str) -> tuple[str, str]:
    """Return what a command prints: its result, and its notes."""
    options = parser().parse_args(["notify", *words])
    out, err = io.StringIO(), io.StringIO()
    assert (
        options.run(options, portal, Terminal(out, err, {}, writes_json=options.output == "json"))
        == 0
    )
    return out.getvalue(), err.getvalue()


def test_list_prints_a_line_for_each() -> None:
    out, _ = run(Portal(), "list")
    assert out.splitlines()[1].split() == [
        *(UID, "active", "webhook", "https://x.org/...in", "vision"),
        *("mine", "in", "local", "job_ended", "job_failed"),
    ]
    assert "notify add" in run(Portal(rows=[]), "list")[1]


def test_add_sends_only_given_fields_and_prints_secret() -> None:
    portal = Portal()
    out, err = run(
        portal,
        *("add", "--channel", "webhook", "--address", "https://x.org/in"),
        *("--kind", "job_ended", "--kind", "job_failed", "--jobs", "all", "--digest-hour", "0"),
    )
    body = {
        "tenant": "vision", "channel": "webhook", "address": "https://x.org/in",
        "kinds": ["job_ended", "job_failed"], "jobs": "all", "digest_hour": 0,
    }  # fmt: skip
    assert portal.sent == [("POST", "/subscriptions", body)]
    assert (out, "whsec_1" in err) == (f"{UID}\n", True)


@pytest.mark.parametrize("tenants", [(), ("nlp", "vision")])
def test_add_requires_tenant_unless_there_is_one(tenants: tuple[str, ...]) -> None:
    portal = Portal(tenants)
    with pytest.raises(UsageError, match=r"--tenant: (nlp or vision|you have none)"):
        run(portal, "add")
    run(portal, "add", "--tenant", "nlp")
    assert portal.sent == [("POST", "/subscriptions", {"tenant": "nlp", "channel": "mail"})]


def test_remove_and_test_take_first_characters_of_id() -> None:
    portal = Portal()
    assert "test message" in run(portal, "test", UID[:8])[0]
    assert run(portal, "remove", UID[:8]) == (f"{UID}  removed\n", "")
    assert portal.sent == [
        ("POST", f"/subscriptions/{UID}/test", None),
        ("DELETE", f"/subscriptions/{UID}", None),
    ]
    with pytest.raises(UsageError, match="matches no subscription id"):
        run(portal, "remove", "12345678")
