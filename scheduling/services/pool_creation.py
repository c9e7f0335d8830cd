"""The rows that every new pool needs before its first round."""

from datetime import datetime

from evenshare_core.domain.instants import to_us
from evenshare_core.domain.snapshot import Service
from evenshare_core.domain.values import canonical_bytes
from scheduling.engine.clock import start_clock, wall_now
from scheduling.engine.installed import missing_part
from scheduling.engine.states import keep_state
from scheduling.models import Pool, PoolFence
from scheduling.selectors.rounds.states import LeftState


def open_pool(pool: Pool, begin: datetime, *, scale: int) -> None:
    """Create the clock, the fence and empty sums of a new pool, from `begin` of pool time on.

    Raises:
        LookupError: the pool's policy or executor is not installed.
    """
    if missing := missing_part(pool.policy, pool.executor):
        raise LookupError(missing)
    start_clock(pool, begin, scale=scale)
    PoolFence.objects.create(pool=pool, until=wall_now())
    service = canonical_bytes(Service(at_us=to_us(begin)))
    keep_state(pool.pk, LeftState(0, begin, "", "", service, b"{}", [], {}), wall_now().date())
