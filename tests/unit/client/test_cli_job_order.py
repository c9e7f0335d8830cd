"""Test the commands that hold, release and order a job: the request, and the printed line."""

from __future__ import annotations

import argparse
import io
from typing import Any

import pytest

from evenshare.cli import job_order
from evenshare.cli.parser import parser
from evenshare.cli.terminal import Terminal

UID = "0b54d9a2-9d7c-4a37-9be5-2f6d5d0f7a11"


class Portal:
    """Record one request, and answer it with a held job."""

    def __init__(self) -> None:
        self.sent: tuple[str, Any] = ("", None)

    def post(self, path: str, body: Any = None, *, repeatable: bool = False) -> dict[str, Any]:
        assert repeatable
        self.sent = (path, body)
        return {"id": UID, "holds": ["tenant"], "priority": -5}


@pytest.mark.parametrize(
    ("words", "path", "body"),
    [
        (["job", "hold", UID], "hold", None),
        (["job", "release", UID], "release", None),
        (["job", "priority", UID, "-5"], "priority", {"priority": -5}),
    ],
)
def test_command_posts_and_prints_state(words: list[str], path: str, body: Any) -> None:
    options: argparse.Namespace = parser().parse_args(words)
    portal, out = Portal(), io.StringIO()
    run = getattr(job_order, words[1])
    assert run(options, portal, Terminal(out, out, {})) == 0
    assert portal.sent == (f"/jobs/{UID}/{path}", body)
    assert out.getvalue() == f"{UID}  held: tenant, priority -5\n"
