"""`Client.quota_requests`: requests of your tenants for another quota."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from evenshare.cli.api import Transport, part

from .jobs import id_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .answers import QuotaAskRequest, QuotaChangeRow


class QuotaRequests:
    """Requests for quota. A request is given as its answer, or as its id."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(
        self, *, pool: str | None = None, tenant: str | None = None, state: str | None = None
    ) -> Iterator[QuotaChangeRow]:
        """Yield requests, newest first. `state`: open, approved, declined or withdrawn."""
        wanted = {"pool": pool, "tenant": tenant, "state": state}
        for row in self._transport.pages("/quota-requests", sys.maxsize, **wanted):
            yield cast("QuotaChangeRow", row)

    def make(self, *, key: str | None = None, **fields: Unpack[QuotaAskRequest]) -> QuotaChangeRow:
        """Request another quota; an operator decides. The same `key` requests it once.

        Raises RequestConflictError if the tenant has an open request for this quota.
        """
        key = key or str(uuid.uuid4())
        answer = self._transport.post("/quota-requests", dict(fields), key=key)
        return cast("QuotaChangeRow", answer)

    def withdraw(self, request: QuotaChangeRow | str) -> QuotaChangeRow:
        """Withdraw an open request; repeating it is harmless."""
        path = f"/quota-requests/{part(id_of(request))}/withdraw"
        return cast("QuotaChangeRow", self._transport.post(path, repeatable=True))
