"""Launched leases that their executor does not list, and when they count as lost.

A missing entry does not prove that a process ended. An engine that was restarted, or queried as the
wrong user, also returns an empty list. So if an engine can forget processes, a lease counts as lost
only after the time `ExecutorTraits.silence_s`. Only time during which the engine was queried
counts. If many leases vanish at the same time, they do not count as lost until they are listed
again or an operator declares them lost. Source: docs/adr/0207-executors-that-fail.md.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

import structlog

from scheduling.engine.breaker import GuardedExecutor
from scheduling.engine.clock import wall_now
from scheduling.engine.fence import lock_fence
from scheduling.models import ExecutorHealth, Pool
from tenants.scopes import engine_scope

# A mass disappearance: more than a fifth of a pool's launched leases, and at least three.
MASS_SHARE, MASS_LEAST = 5, 3
# The maximum time between two listings that counts as missing: this many seconds, or this many
# rounds if they are longer.
HEARD_S, HEARD_ROUNDS = 60, 2

log = structlog.get_logger(__name__)


def is_mass_disappearance(missing: int, launched: int) -> bool:
    """Return whether too many of a pool's launched leases are missing to count them as lost."""
    return missing >= MASS_LEAST and missing * MASS_SHARE > launched


def unheard(gap: timedelta, round_s: int) -> timedelta:
    """Return the part of the time since the last listing that does not count towards a loss.

    During this part no round listed leases, because the clock jumped, the machine slept, or no
    round was decided. It is negative if the clock was set back.
    """
    most = timedelta(seconds=max(HEARD_S, HEARD_ROUNDS * round_s))
    return gap - min(max(gap, timedelta(0)), most)


def lost_leases(
    executor: GuardedExecutor, pool: Pool, token: int, *, missing: Sequence[str], launched: int
) -> list[str]:
    """Record which leases of `launched` are missing; return those that count as lost."""
    row = executor.health
    is_noted = row is not None and (row.missing or row.accepted or row.frozen_since)
    if not missing and not is_noted:
        return []
    if (
        not is_noted
        and not executor.silence_s
        and not is_mass_disappearance(len(missing), launched)
    ):
        lost = list(missing)
    else:
        lost = _noted(executor, pool, token, missing=missing, launched=launched)
    if lost:
        log.warning("executor.lost", pool=pool.name, tokens=lost)
    return lost


def _noted(
    executor: GuardedExecutor, pool: Pool, token: int, *, missing: Sequence[str], launched: int
) -> list[str]:
    now = wall_now()
    with engine_scope(pool.pk):
        # If this process slept after its listing, another process holds the fence, and the old
        # result must not be written.
        lock_fence(pool.pk, token)
        ExecutorHealth.objects.get_or_create(pool=pool)
        row = ExecutorHealth.objects.select_for_update().get(pool=pool)
        accepted = [one for one in missing if one in row.accepted]
        rest = [one for one in missing if one not in accepted]
        since = _since(row, missing, now, pool.round_s)
        if is_mass_disappearance(len(rest), launched):
            lost = accepted
            _log_change(pool, row, len(rest), launched)
            row.frozen_since = row.frozen_since or now
        else:
            if row.frozen_since is not None:
                log.info("executor.thawed", pool=pool.name, missing=len(rest))
                # After a mass disappearance, each missing lease's time starts again: listings
                # during it do not count towards a loss.
                since |= dict.fromkeys(rest, now)
            silent = timedelta(seconds=executor.silence_s)
            over = [one for one in rest if _is_over(since[one], now, silent)]
            lost = [*accepted, *over]
            row.frozen_since = None
        row.missing = {one: at.isoformat() for one, at in since.items()}
        row.accepted, row.launched, row.listed_at = accepted, launched, now
        row.save(update_fields=["missing", "accepted", "launched", "frozen_since", "listed_at"])
    return lost


def _since(
    row: ExecutorHealth, missing: Collection[str], now: datetime, round_s: int
) -> dict[str, datetime]:
    """Return when each missing lease was last known, moved later by the time without listings."""
    late = unheard(now - row.listed_at, round_s) if row.listed_at else timedelta(0)
    return {
        one: datetime.fromisoformat(row.missing[one]) + late if one in row.missing else now
        for one in missing
    }


def _is_over(since: datetime, now: datetime, silent: timedelta) -> bool:
    """Return whether a lease was missing for long enough, in this listing and in an earlier one."""
    return not silent or (since < now and now - since >= silent)


def _log_change(pool: Pool, row: ExecutorHealth, missing: int, launched: int) -> None:
    if row.frozen_since is None or missing != len(row.missing):
        log.error("executor.mass_loss", pool=pool.name, missing=missing, launched=launched)
