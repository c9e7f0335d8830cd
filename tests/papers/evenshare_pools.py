"""Small pools of v100 nodes after one hour of pool time, with past GPU-time of tenants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.gpu_time import advance, deserved, received
from evenshare_core.policies.evenshare.memory import MARKS
from evenshare_core.policies.evenshare.options import EvenshareOptions
from evenshare_core.policies.options import parse_options
from evenshare_core.units import HOUR_US, SECOND_US
from tests.unit.core.snapshots import lease as lease_of
from tests.unit.core.snapshots import snapshot

AT_US = HOUR_US
LEASE_US = 900 * SECOND_US


def running(
    number: int, node: int, gpus: int, tenant: int = 1, ran_s: int = 400, **fields: Any
) -> Lease:
    """Return this job's lease on one node, which started `ran_s` ago and continues."""
    started_us = AT_US - ran_s * SECOND_US
    given = {"own": gpus, "expires_us": AT_US + 100 * SECOND_US, **fields}
    made = lease_of(number, number, (node, gpus), tenant=tenant, **given)
    return replace(made, started_us=started_us, protected_until_us=started_us + 300 * SECOND_US)


def pool(
    jobs: Sequence[Job],
    leases: Sequence[Lease] = (),
    *,
    sums: Mapping[int, tuple[int, int]] | None = None,
    attained: Mapping[int, int] | None = None,
    **fields: Any,
) -> Snapshot:
    """Return a round without promised starts, which come before all other rules.

    `sums` has A and F of tenants in GPU-seconds, 0 by default; `options` may promise starts.
    `attained` has the GPU-seconds that jobs received; by default, the length of their lease.
    """
    fields["options"] = {"promises": False, **fields.get("options", {})}
    made = snapshot(jobs, (), policy="evenshare", at_us=AT_US, lease_us=LEASE_US, **fields)
    service = advance(made.service, made.changes, AT_US)
    held = {lease.job: lease for lease in leases}
    rows = []
    for row in service.jobs:
        lease = held.get(row.job)
        ran = (AT_US - lease.started_us) * row.demand if lease is not None else 0
        known = (attained or {}).get(row.job)
        alloc = ran if known is None else known * SECOND_US
        fields_of = {"held": row.demand, "held_since_us": AT_US} if lease is not None else {}
        rows.append(replace(row, alloc_gpu_us=alloc, **fields_of))
    holds: dict[int, int] = {}
    for lease in leases:
        holds[lease.tenant] = holds.get(lease.tenant, 0) + lease.gpus
    claims = tuple(replace(row, held=holds.get(row.tenant, 0)) for row in service.claims)
    service = replace(service, claims=claims, jobs=tuple(rows))
    options = parse_options(EvenshareOptions, made.options)
    kept = []
    for claim in claims:
        alloc, fair = received(claim, AT_US), deserved(claim, AT_US)
        past = (sums or {}).get(claim.tenant, (0, 0))
        kept.append(
            [claim.tenant, claim.gpu_type, past[0] * SECOND_US, past[1] * SECOND_US, alloc, fair,
             AT_US, alloc, fair, claim.held, min(claim.demand, claim.quota)]
        )  # fmt: skip
    memory = {"mark": AT_US // (options.window_us // MARKS), "claims": kept}
    return replace(made, leases=tuple(leases), changes=(), service=service, memory=memory)
