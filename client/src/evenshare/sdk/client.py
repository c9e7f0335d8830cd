"""`evenshare.Client`: the portal's REST API for programs, by the transport of the command."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from evenshare.cli.api import Transport, part
from evenshare.cli.config import Server, checked_token, server

from .jobs import Jobs
from .notifications import Notifications
from .quotas import QuotaRequests
from .sweeps import Sweeps

if TYPE_CHECKING:
    from .answers import PoolRow, PoolWhole, PriceRow, QueueRow, QuotaUseRow


class Client:
    """A person's access to one portal; it reads the same login as the command.

    `url` and `token` override `EVENSHARE_URL`, `EVENSHARE_TOKEN` and the file that `evenshare
    login` writes. Answers are dictionaries with the fields of REST.

    Every method raises ApiError if the portal refuses, and UnreachableError without an answer.
    """

    def __init__(
        self, url: str | None = None, token: str | None = None, *, timeout_s: float = 30.0
    ) -> None:
        """Read the login. Raises UsageError if it is invalid."""
        place = server(os.environ, url)
        if token is not None:
            place = Server(place.url, checked_token(token))
        self._transport = Transport(place, timeout_s=timeout_s)
        self.jobs = Jobs(self._transport)
        self.sweeps = Sweeps(self._transport)
        self.pools = Pools(self._transport)
        self.notifications = Notifications(self._transport)
        self.quota_requests = QuotaRequests(self._transport)

    def __repr__(self) -> str:
        return f"Client({self._transport.server.url!r})"

    def quota(self, *, pool: str | None = None, tenant: str | None = None) -> list[QuotaUseRow]:
        """Return what your tenants hold now, within their quotas and above them."""
        answer = self._transport.get("/quotas/use", pool=pool, tenant=tenant)
        return cast("list[QuotaUseRow]", answer["results"])

    def price(self, *, pool: str | None = None) -> list[PriceRow]:
        """Return the posted prices of borrowed GPUs."""
        answer = self._transport.get("/prices", pool=pool)
        return cast("list[PriceRow]", answer["results"])


class Pools:
    """The pools that you may see."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> list[PoolRow]:
        return cast("list[PoolRow]", self._transport.get("/pools")["results"])

    def get(self, name: str) -> PoolWhole:
        """Return a pool with its GPUs by type and its nodes."""
        return cast("PoolWhole", self._transport.get(f"/pools/{part(name)}"))

    def queue(self, name: str) -> Iterator[QueueRow]:
        """Yield a pool's queued jobs in the policy's order."""
        for row in self._transport.pages(f"/pools/{part(name)}/queue", sys.maxsize):
            yield cast("QueueRow", row)
