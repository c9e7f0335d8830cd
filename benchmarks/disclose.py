"""Benchmark of bundles of two rounds: with 10,000 waiting jobs on 1,000 nodes, and with 60 jobs."""

import sys
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from benchmarks.decide_ltgf import cpu_ms, sized
from benchmarks.ltgf_pool import advanced, pool
from evenshare_core.disclosure.bundle import Naming, ids_of, make_bundle, read_bundle
from evenshare_core.disclosure.own import own_excerpts
from evenshare_core.disclosure.redaction import redacted
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.domain.values import canonical_bytes, named
from evenshare_core.policies.base import decide_round

JOBS, SMALL = 10_000, 60
GOAL_MS, SMALL_GOAL_MS = 300, 10
KINDS = {
    "tenant": "tenants", "for_tenant": "tenants", "buyer": "tenants", "seller": "tenants",
    "job": "jobs", "for_job": "jobs", "first_job": "jobs", "lease": "leases",
    "profile": "profiles",
}  # fmt: skip # a table
TABLES = {"tenants", "jobs", "leases", "profiles"}


def plain_way(value: Any, numbers: Mapping[str, Mapping[int, int]], table: str = "") -> Any:
    """Return plain data with field names, with ids replaced by numbers row by row."""
    if isinstance(value, dict):
        return {
            key: numbers[KINDS[key]][row]
            if key in KINDS
            else numbers[table][row]
            if key == "id" and table in TABLES
            else plain_way(row, numbers, key)
            for key, row in value.items()
        }
    if isinstance(value, list):
        if table == "jobs" and value and isinstance(value[0], int):
            return [numbers["jobs"][row] for row in value]
        return [plain_way(row, numbers, table) for row in value]
    return value


def plain_bundle(snapshot: Snapshot, decision: Decision) -> tuple[bytes, bytes]:
    asked = redacted(snapshot)
    numbers = {
        name: {0: 0} | {id_: number for number, id_ in enumerate(rows, 1)}
        for name, rows in ids_of(asked)._asdict().items()
    }
    parts = [plain_way(named(value), numbers) for value in (asked, decision)]
    return msgspec.json.encode(parts[0]), msgspec.json.encode(parts[1])


def measure(title: str, snapshot: Snapshot, goal_ms: float) -> bool:
    """Print a round's figures; return False if the run misses the goal."""
    decision = decide_round(snapshot)
    naming = Naming(*({id_: f"{id_:016x}" for id_ in rows} for rows in ids_of(snapshot)))

    def make() -> bytes:
        return make_bundle(
            snapshot, decision, pool="philly", naming=naming, certificate=None, superseded=(),
            versions={},
        )  # fmt: skip # rows of what belongs together

    made_ms, data = cpu_ms(make)
    read_ms, read = cpu_ms(lambda: read_bundle(data))
    own_ms, own = cpu_ms(lambda: own_excerpts(read))
    one_ms, _ = cpu_ms(lambda: own_excerpts(read, [1]))
    plain_ms, parts = cpu_ms(lambda: plain_bundle(snapshot, decision))
    if canonical_bytes(decide_round(read.snapshot)) != canonical_bytes(read.decision):
        raise SystemExit(f"{title}: the bundle that was read gives another decision")
    document = msgspec.json.decode(data)
    if [document["snapshot"], document["decision"]] != [msgspec.json.decode(p) for p in parts]:
        raise SystemExit(f"{title}: the plain method gives other rows")
    print(
        f"{title:<26} made {made_ms:6.1f} ms  read {read_ms:6.1f} ms  plain way {plain_ms:7.1f} ms:"
        f" {plain_ms / made_ms:4.1f} times  {len(data) / 1e6:5.2f} MB\n"
        f"{'':<26} own rows of {len(own)} tenants {own_ms:6.1f} ms, of one tenant {one_ms:6.1f} ms"
    )
    return max(made_ms, read_ms) <= goal_ms


def main() -> int:
    """Print the times of both rounds; return 1 if the run misses a goal."""
    print("CPU time, median; ltgf")
    busy = replace(advanced(sized(JOBS, fill=0.97, expired=0.02)), options={})
    small = pool(seed=1, nodes=8, tenants=5, pending=SMALL, fill=0.9, expired=0.2)
    is_met = [
        measure(f"{JOBS} jobs, busy pool", busy, GOAL_MS),
        measure(f"{SMALL} jobs", replace(small, options={}), SMALL_GOAL_MS),
    ]
    print(f"goals: {GOAL_MS} ms each, made and read; {SMALL_GOAL_MS} ms with {SMALL} jobs")
    return 0 if all(is_met) else 1


if __name__ == "__main__":
    sys.exit(main())
