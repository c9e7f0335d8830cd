"""The pool of `simulate`: nodes, quotas, prices, profiles, and the start of the run."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from evenshare_core.cli.command import Options
from evenshare_core.cli.files import InputError, opened
from evenshare_core.domain.cluster import Node, Resources
from evenshare_core.domain.plurals import plural
from evenshare_core.domain.snapshot import Surcharge
from evenshare_core.simulation.pool_files import (
    NamedNode,
    PoolQuota,
    entitlements_of,
    node_resources,
    number_tenants,
    read_nodes,
    read_prices,
    read_quotas,
    read_surcharges,
)
from evenshare_core.simulation.profile_files import ProfiledModel, fit_profiles, read_profiles
from evenshare_core.simulation.scenario import Scenario
from evenshare_core.simulation.tables import TableError
from evenshare_core.simulation.throughputs import Speeds
from evenshare_core.simulation.trace_fields import UnfitError, submission
from evenshare_core.simulation.workloads import ONE_TYPE, Workload, job_resources, make_nodes
from evenshare_core.units import COUNT_MAX, ONE_MILLI, SECOND_US

_CLUSTERS = ("nodes", "gpu_types", "node_list", "partitions")


@dataclass(frozen=True, slots=True)
class PoolInputs:
    """A pool from files and options, before it is combined with jobs.

    `node_resources` has the CPUs and memory of nodes, where known. `speeds` has the speed of jobs
    without a model by GPU type, in thousandths. `prices` and `surcharges` are as in `Cluster`.
    """

    start_us: int | None
    nodes: tuple[Node, ...]
    node_names: Mapping[int, str]
    node_resources: tuple[Resources, ...]
    speeds: Mapping[str, int]
    quotas: tuple[PoolQuota, ...]
    prices: Mapping[str, tuple[int, int]]
    surcharges: tuple[Surcharge, ...]
    job_types: tuple[ProfiledModel, ...]
    spread_milli: int

    def numbered(self, workload: Workload) -> Workload:
        """Return the workload with tenants in the order of the quotas, if there are any."""
        if not self.quotas:
            return workload
        return number_tenants(workload, [line.tenant for line in self.quotas])

    def applied(self, scenario: Scenario, options: Options) -> Scenario:
        """Return the scenario with the settings of the pool's files.

        Raises:
            InputError: a file does not match the nodes or the jobs; the message names it.
        """
        cluster, workload = scenario.cluster, scenario.workload
        sizes = cluster.node_sizes
        cluster = replace(
            cluster, prices=self.prices, surcharges=self.surcharges, spread_milli=self.spread_milli
        )
        if self.node_resources:  # without this, resources are unlimited, as in a live pool
            cluster = replace(
                cluster,
                node_resources=self.node_resources,
                job_resources=job_resources(workload.jobs),
            )
        if self.quotas:
            with _naming(options["quotas"]):
                quotas = entitlements_of(self.quotas, workload.tenants, sizes)
            cluster = replace(cluster, quotas=quotas)
        if self.job_types:
            with _naming(options["profiles"]):
                jobs, profiles = fit_profiles(
                    workload.jobs, workload.tenants, self.job_types, sizes
                )
            workload, cluster = replace(workload, jobs=jobs), replace(cluster, profiles=profiles)
        start_us = self.start_us or 0
        early = [job for job in workload.jobs if job.submitted_us < start_us]
        if early:
            count = plural(len(early), "job is", "jobs are")
            raise InputError(
                f"--start: {count} submitted before it, first {early[0].name!r} at"
                f" {early[0].submitted_us / SECOND_US:.0f} s; remove them, or start earlier"
            )
        return replace(
            scenario,
            workload=workload,
            cluster=cluster,
            start_us=start_us,
            node_names=self.node_names,
        )


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Add the name of a file to errors in the block."""
    try:
        yield
    except TableError as error:
        raise InputError(f"{name}: {error}") from error


def pool_inputs(options: Options, measured: Speeds | None) -> PoolInputs:
    """Read a pool from the options and their files.

    Raises:
        InputError: an option is unusable, or two options conflict.
    """
    _check_together(options, measured)
    start_us = None if options["start"] is None else _start_us(options["start"])
    rows, speeds = _nodes(options)
    nodes = tuple(row.node for row in rows)
    names = {row.node.id: row.name for row in rows if row.name}
    quotas: list[PoolQuota] = []
    prices: dict[str, tuple[int, int]] = {}
    surcharges: tuple[Surcharge, ...] = ()
    job_types: list[ProfiledModel] = []
    if options["quotas"]:
        with opened(options["quotas"]) as text:
            quotas = read_quotas(text.read(), start_us)
    if options["prices"]:
        with opened(options["prices"]) as text:
            content = text.read()
        prices, surcharges = read_prices(content), read_surcharges(content)
        unknown = sorted(set(prices) - {node.gpu_type for node in nodes})
        if unknown:
            raise InputError(f"{options['prices']}: no node has GPUs of type {unknown[0]!r}")
    if options["profiles"]:
        with opened(options["profiles"]) as text:
            job_types = read_profiles(text.read())
    penalty = options["spread_penalty"]
    if not 0 <= penalty < 1:
        raise InputError("--spread-penalty: must be a share from 0 to less than 1, such as 0.2")
    spread_milli = max(1, round((1 - penalty) * ONE_MILLI))
    return PoolInputs(
        start_us, nodes, names, node_resources(rows), speeds, tuple(quotas), prices,
        surcharges, tuple(job_types), spread_milli,
    )  # fmt: skip # rows of what belongs together


def _check_together(options: Options, measured: Speeds | None) -> None:
    given = [name for name in _CLUSTERS if options[name] is not None]
    if len(given) != 1:
        raise InputError("needs exactly one of --nodes, --gpu-types, --node-list and --partitions")
    if measured is not None and given[0] not in ("gpu_types", "node_list"):
        raise InputError("speeds of models are by GPU type: needs --gpu-types or --node-list")
    if options["speeds"] and options["profiles"]:
        raise InputError("--speeds and --profiles both give speeds of models: use only one of them")
    if options["partitions"]:
        for name in ("quotas", "prices"):
            if options[name]:
                raise InputError(
                    f"--{name}: not with --partitions, where each tenant has its own nodes"
                )


def _start_us(text: str) -> int:
    try:
        return submission(text)
    except UnfitError as error:
        raise InputError(f"--start {error.reason}; use 2017-10-09T00:00 or 3600") from None


def whole_number(text: str, what: str, most: int = COUNT_MAX) -> int:
    """Read a whole number from 1 to `most`.

    Raises:
        InputError: the text is not such a number.
    """
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= most:
        raise InputError(f"{what}: must be a whole number from 1 to {most:,}, not {text!r}")
    return int(text)


def _nodes(options: Options) -> tuple[list[NamedNode], dict[str, int]]:
    gpus = options["gpus_per_node"]
    whole_number(str(gpus), "--gpus-per-node")
    if options["partitions"]:
        return [], {}
    if options["node_list"]:
        with opened(options["node_list"]) as text:
            return read_nodes(text.read()), {}
    counts: dict[str, int] = {}
    speeds: dict[str, int] = {}
    if options["gpu_types"] is None:
        counts[ONE_TYPE] = whole_number(str(options["nodes"]), "--nodes", COUNT_MAX // gpus)
        return [NamedNode("", node) for node in make_nodes(counts, gpus)], {}
    for part in options["gpu_types"].split(","):
        name, _, rest = part.partition(":")
        count, _, speed = rest.partition(":")
        if not name or name in counts:
            raise InputError(f"--gpu-types: {part!r} has an empty or repeated type")
        counts[name] = whole_number(count, f"--gpu-types {name}", COUNT_MAX // gpus)
        speeds[name] = _speed_milli(speed or "1", f"--gpu-types {name}")
    nodes = [NamedNode("", node) for node in make_nodes(counts, gpus)]
    return nodes, speeds if set(speeds.values()) != {ONE_MILLI} else {}


def _speed_milli(text: str, what: str) -> int:
    try:
        milli = round(float(text) * ONE_MILLI)
    except (ValueError, OverflowError):
        milli = 0
    if not 0 < milli <= COUNT_MAX:
        raise InputError(f"{what}: must be a speed from 0.001 to 1000, not {text!r}")
    return milli
