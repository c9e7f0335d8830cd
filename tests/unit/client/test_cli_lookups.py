"""Test the commands that list members and job types."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from evenshare.cli.parser import parser
from evenshare.cli.terminal import Terminal


class Portal:
    """Answer with a tenant, its member and its job type."""

    profiles: tuple[dict[str, Any], ...] = (
        {
            "name": "resnet",
            "tenant": "vision",
            "speeds": {"k80": "1", "v100": "4.8"},
            "origin": "x",
        },
    )

    def get(self, path: str) -> dict[str, Any]:
        assert path == "/quotas/use"
        return {"results": [{"tenant": "vision"}]}

    def pages(self, path: str, limit: int | None, **query: Any) -> Iterator[dict[str, Any]]:
        assert limit is None
        if path == "/tenants/vision/members":
            return iter([{"username": "rosa", "name": "Rosa", "role": "member"}])
        assert (path, query) == ("/pools/p/profiles", {"tenant": None})
        return iter(self.profiles)


def run(portal: Portal, *words: str) -> str:
    options = parser().parse_args(words)
    out, err = io.StringIO(), io.StringIO()
    assert (
        options.run(options, portal, Terminal(out, err, {}, writes_json=options.output == "json"))
        == 0
    )
    return out.getvalue() + err.getvalue()


def test_lists_members_of_the_only_tenant() -> None:
    assert run(Portal(), "member", "list").splitlines()[1].split() == ["rosa", "member", "Rosa"]


def test_lists_job_types_with_their_speeds() -> None:
    portal = Portal()
    row = run(portal, "profile", "list", "--pool", "p").splitlines()[1]
    assert row.split() == ["resnet", "vision", "k80=1", "v100=4.8", "x"]
    portal.profiles = ()
    assert run(portal, "profile", "list", "--pool", "p") == "no job types\n"
