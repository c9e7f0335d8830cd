"""What the operator's views of pools share: the pool that is meant, locked while it is edited."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from scheduling.engine.clock import read_clock
from scheduling.models import Node, Pool
from tenants.api.operate import OperateView
from tenants.api.problems import not_there
from tenants.models import Quota
from tenants.scopes import site_scope


class PoolView(OperateView):
    """Finds pools by name; every pool is there for those who run the site."""

    def named(self, name: str) -> Pool:
        """Return a pool.

        Raises:
            Problem: 404.
        """
        pool = Pool.objects.filter(name=name).first()
        if pool is None:
            raise not_there()
        return pool

    def asked(self) -> list[Pool]:
        """Return the pool of the query's `pool`, or all of them.

        Raises:
            Problem: 404.
        """
        name = self.request.query_params.get("pool", "")
        return [self.named(name)] if name else list(Pool.objects.order_by("id"))

    @contextmanager
    def edited(self, name: str) -> Iterator[tuple[Pool, datetime]]:
        """One transaction with the pool, its nodes and quotas locked, at its time of now.

        So what If-Match is compared with stays as it is until the edit is made.

        Raises:
            Problem: 404.
        """
        with site_scope():
            pool = Pool.objects.select_for_update(no_key=True).filter(name=name).first()
            if pool is None:
                raise not_there()
            list(Node.objects.select_for_update(no_key=True).filter(pool=pool).order_by("id"))
            list(Quota.objects.select_for_update(no_key=True).filter(pool=pool).order_by("id"))
            yield pool, read_clock(pool.pk).pool_at
