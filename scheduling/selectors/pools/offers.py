"""A pool's facts for a tenant that wants to submit. A single query."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tenants.sql import fetch_rows

_OFFER = """
SELECT p.id, p.name, p.executor, p.on_demand, p.book, greatest(p.lease_s, p.most_lease_s),
       p.round_s,
       coalesce((
           SELECT jsonb_object_agg(name, gpus) FROM (
               SELECT t.name, sum(n.gpus) AS gpus
               FROM scheduling_node n JOIN scheduling_gputype t ON t.id = n.gpu_type_id
               WHERE n.pool_id = p.id GROUP BY t.name
           ) types
       ), '{}')::text,
       coalesce((
           SELECT jsonb_object_agg(f.name, f.speedups)
           FROM scheduling_profile f WHERE f.pool_id = p.id AND f.tenant_id = %s
       ), '{}')::text,
       coalesce((
           SELECT jsonb_object_agg(name, gpus) FROM (
               SELECT t.name, max(q.gpus::bigint + CASE q.mode
                   WHEN 'LEND_AND_BORROW' THEN q.borrow_limit ELSE 0 END) AS gpus
               FROM tenants_quota q JOIN scheduling_gputype t ON t.id = q.gpu_type_id
               WHERE q.pool_id = p.id AND q.tenant_id = %s
                 AND (q.valid_until IS NULL OR q.valid_until > s.at)
               GROUP BY t.name
               HAVING count(*) = 1 AND bool_and(q.valid_until IS NULL AND q.valid_from <= s.at)
           ) limits WHERE gpus IS NOT NULL
       ), '{}')::text,
       p.policy, p.options::text, p.lease_s
FROM scheduling_pool p CROSS JOIN LATERAL (
    SELECT at FROM scheduling_roundstate
    WHERE pool_id = p.id ORDER BY number DESC, day DESC LIMIT 1
) s
WHERE p.name = %s
  AND EXISTS (SELECT FROM tenants_quota q WHERE q.pool_id = p.id AND q.tenant_id = %s)
"""


@dataclass(frozen=True, slots=True)
class PoolOffer:
    """A pool's facts that a submitter needs; `gpus` counts all GPUs by type, even drained ones.

    `profiles`: the tenant's job types with their speeds, {name: {GPU type: thousandths}}.
    `at_most`: the maximum number of GPUs that the tenant may hold at once, quota plus borrowing
    limit. It includes only GPU types whose limit is permanent: a single quota, since before the
    last round and without an end. `usual_lease_s`: the pool's lease length; `lease_s`: the longest
    that its `policy` may give.
    """

    id: int
    name: str
    executor: str
    on_demand: bool
    book: str
    lease_s: int  # the longest that the policy may give
    round_s: int
    gpus: Mapping[str, int]
    profiles: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    at_most: Mapping[str, int] = field(default_factory=dict)
    policy: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    usual_lease_s: int = 0


def pool_offer(name: str, tenant_id: int) -> PoolOffer | None:
    """Return a pool in which a tenant has or had quota, or None for any other name."""
    if not name:
        return None
    rows = fetch_rows(_OFFER, [tenant_id, tenant_id, name, tenant_id])
    if not rows:
        return None
    *facts, gpus, profiles, at_most, policy, options, usual_s = rows[0]
    counts = map(json.loads, (gpus, profiles, at_most))
    fields = [*facts, *counts, policy, json.loads(options), usual_s]
    return PoolOffer(*fields)
