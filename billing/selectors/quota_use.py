"""The use of a tenant's quota in a pool: used, kept, lent, or lendable but unused.

It is computed over pool time, from the events that changed quotas and the terms that held GPUs.
Read-only.
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any

from billing.selectors.accounts import exact_hours
from billing.selectors.statements import Given
from evenshare_core.domain.instants import from_us, to_us
from evenshare_core.money.quota_use import EntitledStep, QuotaUse, UseStep, quota_use
from evenshare_core.money.revenue.terms import Sweep
from tenants.answers import Answer, about, formatted_as
from tenants.scopes import site_reading
from tenants.sql import fetch_rows

# Terms are counted one by one, so a longer range would be too slow for a page.
QUOTA_USE_MOST = timedelta(days=31)
GpuHours = Annotated[Decimal, formatted_as("{:.6f}".format, type="string")]


class QuotaUseItem(Answer, frozen=True):
    """The use of a quota of a type, in GPU-hours: `quota` is the sum of the other fields."""

    gpu_type: str
    quota_gpu_h: GpuHours
    own_gpu_h: GpuHours
    lent_gpu_h: GpuHours
    kept_gpu_h: Annotated[GpuHours, about("Idle and not lent, by its own limit or mode.")]
    free_gpu_h: Annotated[GpuHours, about("Lendable, with a free GPU that no job took.")]
    without_gpu_h: Annotated[GpuHours, about("Lendable, but all GPUs were in use.")]


@dataclass(frozen=True, slots=True)
class CountedQuota:
    """The use of a tenant's quota by GPU type in [since, until) of pool time.

    `until` is earlier than requested if the rest is in the future or not metered yet. Types without
    quota are left out.
    """

    since: datetime
    until: datetime
    by_type: Mapping[str, QuotaUse]

    @property
    def rows(self) -> list[QuotaUseItem]:
        """Return a row per GPU type, in GPU-hours."""
        return [
            QuotaUseItem(
                name,
                *(
                    exact_hours(gpu_us)
                    for gpu_us in (use.quota_us, use.own_us, use.lent_us, use.kept_us,
                                   use.free_us, use.without_gpu_us)
                ),
            )
            for name, use in self.by_type.items()
        ]  # fmt: skip # rows of what belongs together


def counted_quota(
    tenant_id: int, pool_id: int, *, since: datetime, until: datetime
) -> CountedQuota:
    """Return the use of a tenant's quota in the metered part of [since, until).

    Two queries return the terms of all tenants since then, and changes of quotas. A start or an end
    that was reported late counts at its exact time.

    Raises:
        ValueError: the range is longer than `QUOTA_USE_MOST`.
    """
    if until - since > QUOTA_USE_MOST:
        raise ValueError(f"at most {QUOTA_USE_MOST.days} days are counted")
    with site_reading():
        known_us, uses = _use_steps(pool_id, since, until)
        ends_us = max(min(to_us(until), known_us), to_us(since))
        quotas = quota_steps(pool_id, since, from_us(ends_us))
    by_type = {
        name: quota_use(tenant_id, steps, uses[name], since_us=to_us(since), until_us=ends_us)
        for name, steps in sorted(quotas.items())
    }
    had = {name: use for name, use in by_type.items() if use.quota_us}
    return CountedQuota(since, from_us(ends_us), had)


_QUOTAS = """
    SELECT data, at FROM (
        (SELECT DISTINCT ON (data->>'gpu_type') data, at, number
         FROM scheduling_leaseevent
         WHERE pool_id = %(pool)s AND kind = 'entitled' AND at <= %(since)s
         ORDER BY data->>'gpu_type', at DESC, number DESC)
        UNION ALL
        (SELECT data, at, number FROM scheduling_leaseevent
         WHERE pool_id = %(pool)s AND kind = 'entitled' AND at > %(since)s AND at < %(until)s)
    ) events ORDER BY at, number
"""
# A line's hour is the hour of its end, or a later one. A single statement reads the meter's running
# terms and the lines of past terms, so that both are of the same moment.
_TERMS = """
    SELECT type.name, line.tenant_id, line.meter, line.gpus, line.starts_at, line.ends_at, NULL
    FROM billing_usageline line JOIN scheduling_gputype type ON type.id = line.gpu_type_id
    WHERE line.pool_id = %(pool)s
      AND line.hour >= date_trunc('hour', %(since)s::timestamptz, 'UTC')
      AND line.ends_at > %(since)s AND line.starts_at < %(until)s
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, NULL, NULL, (cursor.state->'sweep')::text
    FROM billing_metercursor cursor WHERE cursor.pool_id = %(pool)s
"""


def quota_steps(pool_id: int, since: datetime, until: datetime) -> dict[str, list[EntitledStep]]:
    """Return quotas by GPU type in order of time: those at `since`, and changes until `until`.

    A single query; the caller must be in the site's reading scope.
    """
    given: Given = {"pool": pool_id, "since": since, "until": until}
    steps: dict[str, list[EntitledStep]] = defaultdict(list)
    for raw, at in fetch_rows(_QUOTAS, given):
        data = json.loads(raw)
        quotas = {int(key): (gpus, lend) for key, (gpus, lend) in data["quotas"].items()}
        steps[data["gpu_type"]].append(EntitledStep(to_us(at), data["capacity"], quotas))
    return steps


def _use_steps(
    pool_id: int, since: datetime, until: datetime
) -> tuple[int, dict[str, list[UseStep]]]:
    """Return the end of the metered time, and by GPU type the GPUs that terms held until then."""
    given: Given = {"pool": pool_id, "since": since, "until": until}
    uses: dict[str, list[UseStep]] = defaultdict(list)
    known_us = 0
    for gpu_type, tenant, meter, gpus, starts_at, ends_at, state in fetch_rows(_TERMS, given):
        if gpu_type is None:
            known_us = _take_running(json.loads(state or "null"), uses)
            continue
        own, borrowed = (gpus, 0) if meter == "own" else (0, gpus)
        uses[gpu_type] += (
            UseStep(to_us(starts_at), tenant, own, borrowed),
            UseStep(to_us(ends_at), tenant, -own, -borrowed),
        )
    return known_us, uses


def _take_running(state: dict[str, Any] | None, uses: dict[str, list[UseStep]]) -> int:
    """Add the running terms, and return the end of the metered time."""
    sweep = Sweep.from_state(state or {})
    for term in sweep.running.values():
        if term.starts_us is not None:
            step = UseStep(term.starts_us, term.tenant, term.own, term.borrowed)
            uses[term.gpu_type].append(step)
    return sweep.watermark_us
