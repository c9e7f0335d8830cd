"""A pool as CSV files: quotas, nodes and price settings, read by `simulate`, written by a portal.

| file | columns |
|---|---|
| quotas | tenant, gpu_type, gpus; mode, borrow_limit, lend_limit as an entitlement has them; |
| | pool, from, until as a portal's file of quotas has them |
| nodes | name, gpu_type, gpus (0: the node offers none); cpus, memory_mb (for jobs) |
| prices | gpu_type, base (credits per GPU-hour), theta; surcharge_cap (times the base), |
| | surcharge_step (per cent of the base per round), if the queue adds to a price |

Tenants are numbered in the order of the quotas. In a tie the policy prefers the lower number, as it
prefers the older tenant in a live pool.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from evenshare_core.csv_cells import write_csv
from evenshare_core.domain.cluster import Node, Resources
from evenshare_core.domain.entitlements import Entitlement, Mode
from evenshare_core.domain.snapshot import Surcharge
from evenshare_core.money.fixed_point import to_micro
from evenshare_core.simulation.tables import TableError, TableRow, read_table
from evenshare_core.simulation.trace_fields import UnfitError, shown, submission
from evenshare_core.simulation.workloads import Workload
from evenshare_core.units import MEMORY_MB_MAX, ONE_MILLI

QUOTA_COLUMNS = ("tenant", "gpu_type", "gpus", "mode", "borrow_limit", "lend_limit")
NODE_COLUMNS = ("name", "gpu_type", "gpus")
RESOURCE_COLUMNS = ("cpus", "memory_mb")
PRICE_COLUMNS = ("gpu_type", "base", "theta")
SURCHARGE_COLUMNS = ("surcharge_cap", "surcharge_step")
STEP_DEFAULT, STEP_LEAST, STEP_MOST = Decimal(5), Decimal("0.1"), Decimal(100)
NODE_GPUS_MAX = 1024
THETA_MOST = Decimal(1000)  # the highest value that an operator may set

_TYPE = re.compile(r"[-A-Za-z0-9_]{1,31}", re.ASCII)


@dataclass(frozen=True, slots=True)
class PoolQuota:
    """A quota with its tenant's name; `quota.tenant` is 0 until tenants have numbers."""

    place: str
    tenant: str
    quota: Entitlement


@dataclass(frozen=True, slots=True)
class NamedNode:
    """A node with its name; `cpus` and `memory_mb` are 0 if unknown."""

    name: str
    node: Node
    cpus: int = 0
    memory_mb: int = 0


def read_quotas(text: str, start_us: int | None) -> list[PoolQuota]:
    """Read the quotas that hold from the start of a run, in the order of the file.

    `start_us` selects among several periods of a quota. If it is None, no row may have from or
    until.

    Raises:
        TableError: a row is invalid or repeated, or starts or ends during the run.
    """
    rows = read_table(
        text,
        "quotas",
        required=QUOTA_COLUMNS[:3],
        optional=(*QUOTA_COLUMNS[3:], "pool", "from", "until"),
    )
    pools = {row.text("pool"): row for row in rows}
    if len(pools) > 1:
        wrong = "differs from the rows above; keep the rows of one pool"
        raise list(pools.values())[-1].error("pool", wrong)
    lines: dict[tuple[str, str], PoolQuota] = {}
    for row in rows:
        line = _quota(row)
        if not _holds(row, start_us):
            continue
        key = (line.tenant, line.quota.gpu_type)
        if key in lines:
            raise row.error("tenant", f"has a quota of this type already, in {lines[key].place}")
        lines[key] = line
    if not lines:
        raise TableError("has no quota at the start")
    return list(lines.values())


def _quota(row: TableRow) -> PoolQuota:
    modes = ", ".join(Mode)
    mode = row.text("mode") or Mode.LEND_AND_BORROW.value
    if mode not in set(Mode):
        raise row.error("mode", f"is unknown: {shown(mode)}; use one of {modes}")
    gpus = row.whole("gpus")
    if gpus is None:
        raise row.error("gpus", "is empty; use a whole number from 0 on")
    quota = Entitlement(
        0, gpu_type_of(row), gpus, Mode(mode), row.whole("borrow_limit"), row.whole("lend_limit")
    )
    return PoolQuota(row.place, row.name("tenant"), quota)


def _holds(row: TableRow, start_us: int | None) -> bool:
    """Return whether the row's period covers the whole run; False if it ended before the start."""
    bounds: dict[str, int] = {}
    for column in ("from", "until"):
        text = row.text(column)
        if not text or (column == "from" and text == "now"):
            continue
        if start_us is None:
            raise row.error(column, "needs --start, or leave it empty")
        try:
            bounds[column] = submission(text)
        except UnfitError as error:
            raise row.error(column, f"{error.reason}; use an instant") from None
    if start_us is None:
        return True
    if bounds.get("until", start_us + 1) <= start_us:
        return False
    advice = "is during the run, but changes of quotas are not simulated; leave"
    if bounds.get("from", start_us) > start_us:
        raise row.error("from", f"{advice} the row out, or start later")
    if "until" in bounds:
        raise row.error("until", f"{advice} it empty")
    return True


def gpu_type_of(row: TableRow) -> str:
    """Return the GPU type of a row.

    Raises:
        TableError: the name is invalid.
    """
    name = row.name("gpu_type")
    if not _TYPE.fullmatch(name):
        advice = "use up to 31 letters, digits, - and _"
        raise row.error("gpu_type", f"is not a name of a GPU type: {shown(name)}; {advice}")
    return name


def read_nodes(text: str) -> list[NamedNode]:
    """Read nodes, numbered from 1 in the order of the file.

    Raises:
        TableError: a row is invalid, or has the name of another node.
    """
    nodes: dict[str, NamedNode] = {}
    rows = read_table(text, "nodes", required=NODE_COLUMNS, optional=RESOURCE_COLUMNS)
    for index, row in enumerate(rows, start=1):
        name, gpus = row.name("name"), row.whole("gpus", most=NODE_GPUS_MAX)
        if gpus is None:
            raise row.error("gpus", f"is empty; use a whole number from 0 to {NODE_GPUS_MAX}")
        if name in nodes:
            raise row.error("name", f"is repeated: {shown(name)}; use another name")
        cpus, memory_mb = row.whole("cpus"), row.whole("memory_mb", most=MEMORY_MB_MAX)
        node = Node(index, gpu_type_of(row), gpus)
        nodes[name] = NamedNode(name, node, cpus or 0, memory_mb or 0)
    if not any(one.node.gpus for one in nodes.values()):
        raise TableError("has no node with a GPU")
    return list(nodes.values())


def read_prices(text: str) -> dict[str, tuple[int, int]]:
    """Read price settings: GPU type -> (base in micro-credits per GPU-hour, theta in thousandths).

    Raises:
        TableError: a row is invalid, or its type is repeated.
    """
    prices: dict[str, tuple[int, int]] = {}
    for row in _price_rows(text):
        gpu_type = gpu_type_of(row)
        base = row.decimal("base", least=Decimal(0), places=6)
        theta = row.decimal("theta", least=Decimal(1), most=THETA_MOST, places=3)
        if base is None or theta is None:
            column = "base" if base is None else "theta"
            raise row.error(column, "is empty; use a number")
        if gpu_type in prices:
            raise row.error("gpu_type", "is repeated; remove one")
        prices[gpu_type] = (to_micro(base), int(theta * ONE_MILLI))
    return prices


def read_surcharges(text: str) -> tuple[Surcharge, ...]:
    """Read the surcharge settings, by GPU type, from the file of `read_prices`.

    Raises:
        TableError: a cell is not a valid number.
    """
    surcharges = []
    for row in _price_rows(text):
        cap = row.decimal("surcharge_cap", least=Decimal(0), most=THETA_MOST, places=3)
        step = row.decimal("surcharge_step", least=STEP_LEAST, most=STEP_MOST, places=1)
        if cap:
            step_milli = int((step or STEP_DEFAULT) * ONE_MILLI / 100)
            surcharges.append(Surcharge(gpu_type_of(row), step_milli, int(cap * ONE_MILLI)))
    return tuple(sorted(surcharges, key=lambda row: row.gpu_type))


def _price_rows(text: str) -> list[TableRow]:
    return read_table(text, "prices", required=PRICE_COLUMNS, optional=SURCHARGE_COLUMNS)


def quotas_csv(rows: Iterable[tuple[str, Entitlement]]) -> str:
    return write_csv(
        QUOTA_COLUMNS,
        [
            (name, row.gpu_type, row.gpus, row.mode.value, row.borrow_limit, row.lend_limit)
            for name, row in rows
        ],
    )


def nodes_csv(nodes: Iterable[NamedNode]) -> str:
    rows = list(nodes)
    if not node_resources(rows):
        return write_csv(
            NODE_COLUMNS, [(one.name, one.node.gpu_type, one.node.gpus) for one in rows]
        )
    return write_csv(
        (*NODE_COLUMNS, *RESOURCE_COLUMNS),
        [
            (one.name, one.node.gpu_type, one.node.gpus, one.cpus or None, one.memory_mb or None)
            for one in rows
        ],
    )


def node_resources(nodes: Iterable[NamedNode]) -> tuple[Resources, ...]:
    """Return CPUs and memory of the nodes for which they are known, in their order."""
    return tuple(
        Resources(one.node.id, one.cpus, one.memory_mb)
        for one in nodes
        if one.cpus or one.memory_mb
    )


def prices_csv(rows: Iterable[tuple[str, Decimal, Decimal, Decimal, Decimal]]) -> str:
    """Return price settings in the format of `read_prices` and `read_surcharges`.

    Each row is (GPU type, base in credits per GPU-hour, theta, surcharge cap, surcharge step). The
    last two columns are left out if no cap is above 0.
    """
    lines = [(name, *(f"{value:f}" for value in values)) for name, *values in rows]
    if any(Decimal(line[3]) for line in lines):
        return write_csv((*PRICE_COLUMNS, *SURCHARGE_COLUMNS), lines)
    return write_csv(PRICE_COLUMNS, [line[:3] for line in lines])


def number_tenants(workload: Workload, first: Sequence[str]) -> Workload:
    """Number tenants in the order of `first`, then all others by name, with or without jobs."""
    rest = sorted(set(workload.tenants.values()) - set(first))
    ids = {name: index for index, name in enumerate([*dict.fromkeys(first), *rest], start=1)}
    moved = {old: ids[name] for old, name in workload.tenants.items()}
    jobs = tuple(replace(job, tenant=moved[job.tenant]) for job in workload.jobs)
    return replace(workload, jobs=jobs, tenants={index: name for name, index in ids.items()})


def entitlements_of(
    lines: Iterable[PoolQuota], tenants: Mapping[int, str], types: Iterable[str]
) -> tuple[Entitlement, ...]:
    """Return the quotas by (tenant, type), before scaling to the GPUs of the nodes.

    Raises:
        TableError: a quota is of a type that no node has.
    """
    ids = {name: index for index, name in tenants.items()}
    known = sorted(set(types))
    rows = []
    for line in lines:
        if line.quota.gpu_type not in known:
            named = f"has no node: {line.quota.gpu_type!a}; the nodes have {', '.join(known)}"
            raise TableError(f"{line.place}, gpu_type {named}")
        row = line.quota
        rows.append(
            Entitlement(
                ids[line.tenant], row.gpu_type, row.gpus, row.mode, row.borrow_limit, row.lend_limit
            )
        )
    return tuple(sorted(rows, key=lambda row: (row.tenant, row.gpu_type)))
