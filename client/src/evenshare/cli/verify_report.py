"""Reports the scope and the result of a verification to the portal.

The portal shows the report only to the user and to operators. A failed report does not change the
exit code.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from evenshare import __version__
from evenshare.errors import ApiError, UnreachableError

from .api import Transport, part
from .terminal import Terminal, inert


def report(
    client: Transport, screen: Terminal, pool: str, tenants: Iterable[str], said: Mapping[str, Any]
) -> None:
    """Send the report for each of the reader's tenants; print a line if that fails."""
    for tenant in tenants:
        body = {**said, "tenant": tenant, "client": f"evenshare {__version__}"}
        try:
            client.post(f"/chain/{part(pool)}/verifications", body, key=uuid.uuid4().hex)
        except ApiError as refused:
            detail = refused.problem.get("detail") or refused.problem.get("title", "")
            _failed(screen, f"{refused.status}, {detail}")
            return
        except UnreachableError as problem:
            _failed(screen, str(problem))
            return


def _failed(screen: Terminal, why: str) -> None:
    screen.note(f"evenshare: the portal refused the report of this verification: {inert(why)}")
