"""Slows a tenant that submits faster than the portal serves everybody well."""

from __future__ import annotations

import time
from threading import Lock

from django.conf import settings

from tenants.api.problems import Problem

# So many seconds of the rate may come at once.
BURST_S = 10
# What a request costs: a bulk of any size makes one transaction, but a long one.
ONE, BULK = 1.0, 20.0


class Buckets:
    """One bucket of tokens per tenant (or person), in this process: there is one web process."""

    def __init__(self) -> None:
        self._left: dict[int, tuple[float, float]] = {}
        self._lock = Lock()

    @property
    def full(self) -> float:
        """What may be taken at once."""
        return float(settings.SUBMISSIONS_PER_S) * BURST_S

    def take(self, tenant_id: int, cost: float) -> None:
        """Take from the tenant's bucket.

        Raises:
            Problem: 429 where it is empty, with the seconds after which it is not.
        """
        rate = float(settings.SUBMISSIONS_PER_S)
        full, now = rate * BURST_S, time.monotonic()
        with self._lock:
            left, at = self._left.get(tenant_id, (full, now))
            left = min(full, left + (now - at) * rate)
            if left < min(cost, full):
                wait_s = max(1, round((cost - left) / rate))
                detail = "The tenant submits faster than it may; wait a moment."
                raise Problem(429, "throttled", detail, retry_after_s=wait_s)
            self._left[tenant_id] = (left - cost, now)


BUCKETS = Buckets()
