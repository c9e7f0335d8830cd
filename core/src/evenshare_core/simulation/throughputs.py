"""Measured throughputs of models on GPU types, and the profiles of jobs built from them.

The file is a CSV in Gavel's format. Its columns are `job_type` (the model), `scale` (the number of
GPUs measured), and one throughput for each GPU type. If a throughput is 0 or empty, the model
cannot run on this type.

A column that ends in `_unc` has throughputs on GPUs of several nodes; 0, empty or a scale of 1
means not measured. Divided by the column without the suffix, it gives the relative speed of a gang
that spans nodes although one node could hold it.

For a job, the row of its model with the largest scale up to its gang applies. The job's speed and
duration are relative to the slowest type of the cluster that can run it. Source: Gavel (OSDI 2020);
OEF 4.1 for speedups.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation

from evenshare_core.domain.profiles import Profile
from evenshare_core.simulation.workloads import SimJob
from evenshare_core.units import ONE_MILLI

UNCONSOLIDATED = "_unc"


class SpeedsError(ValueError):
    """The file is invalid or does not match the jobs; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class Speeds:
    """Throughputs by model and scale, then by GPU type, without types that cannot run the model."""

    rows: Mapping[str, Mapping[int, Mapping[str, Decimal]]]
    over_nodes: Mapping[str, Mapping[int, Mapping[str, Decimal]]] = field(default_factory=dict)

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(sorted(self.rows))

    def scale(self, model: str, gpus: int) -> int:
        """Return the largest measured scale of the model up to `gpus`.

        Raises:
            SpeedsError: the model was not measured, or only on more GPUs.
        """
        scales = [scale for scale in self.rows.get(model, ()) if scale <= gpus]
        if not scales:
            known = "" if model in self.rows else f"; known are {', '.join(self.models[:5])}, ..."
            raise SpeedsError(f"no speeds of model {model!r} on {gpus} GPUs{known}")
        return max(scales)

    def speedups(self, model: str, scale: int, types: Iterable[str]) -> tuple[tuple[str, int], ...]:
        """Return speeds by type, in thousandths of the slowest type's speed, rounded half to even.

        Raises:
            SpeedsError: none of the types can run the model.
        """
        measured = self.rows[model][scale]
        by_type = {name: measured[name] for name in sorted(types) if name in measured}
        if not by_type:
            raise SpeedsError(f"model {model!r} runs on none of {', '.join(sorted(types))}")
        slowest = min(by_type.values())
        return tuple((name, round(value * ONE_MILLI / slowest)) for name, value in by_type.items())

    def spread(self, model: str, scale: int) -> tuple[tuple[str, int], ...]:
        """Return by type the speed over several nodes, at most 1000 thousandths of one node's."""
        on_one = self.rows[model][scale]
        over_nodes = self.over_nodes.get(model, {}).get(scale, {}) if scale > 1 else {}
        return tuple(
            (name, min(ONE_MILLI, max(1, round(value * ONE_MILLI / on_one[name]))))
            for name, value in sorted(over_nodes.items())
            if name in on_one
        )


def read_speeds(text: Iterable[str]) -> Speeds:
    """Read a file of throughputs.

    Raises:
        SpeedsError: a column is missing, a value is not a number from 0 on, or a row is repeated.
    """
    reader = csv.DictReader(text)
    header = reader.fieldnames or []
    types = [
        name
        for name in header
        if name not in ("job_type", "scale") and not name.endswith(UNCONSOLIDATED)
    ]
    if "job_type" not in header or not types:
        raise SpeedsError("needs a column job_type, and a column of throughput per GPU type")
    rows: dict[str, dict[int, dict[str, Decimal]]] = {}
    over_nodes: dict[str, dict[int, dict[str, Decimal]]] = {}
    for row in reader:
        model, scale = row["job_type"], row.get("scale") or "1"
        if not scale.isdigit() or not int(scale):
            raise SpeedsError(
                f"line {reader.line_num}: the scale is not a number of GPUs: {scale!r}"
            )
        if int(scale) in rows.setdefault(model, {}):
            raise SpeedsError(f"line {reader.line_num}: {model!r} on {scale} is repeated")
        by_type = {name: _throughput(row[name], reader.line_num) for name in types}
        rows[model][int(scale)] = {name: value for name, value in by_type.items() if value}
        spread = {
            name: _throughput(row[name + UNCONSOLIDATED], reader.line_num)
            for name in types
            if name + UNCONSOLIDATED in header
        }
        over_nodes.setdefault(model, {})[int(scale)] = {k: v for k, v in spread.items() if v}
    return Speeds(rows, over_nodes)


def _throughput(text: str | None, line: int) -> Decimal:
    try:
        value = Decimal(text or "0")
    except InvalidOperation:
        value = Decimal(-1)
    if not value.is_finite() or value < 0:
        raise SpeedsError(f"line {line}: {text!r} is not a throughput")
    return value


def make_profiles(
    jobs: Sequence[SimJob], speeds: Speeds, types: Iterable[str]
) -> tuple[tuple[SimJob, ...], dict[int, Profile]]:
    """Give every job with a model the profile of (tenant, model, scale), numbered from 1.

    A job accepts only the types on which its model runs. Jobs without a model stay unchanged.

    Raises:
        SpeedsError: a model was not measured, or runs on no type that its job accepts.
    """
    wanted = frozenset(types)
    profiles: dict[tuple[int, str, int], Profile] = {}
    fitted = []
    for job in jobs:
        if job.model:
            key = (job.tenant, job.model, speeds.scale(job.model, job.gpus))
            if key not in profiles:
                speedups = speeds.speedups(job.model, key[2], wanted)
                profiles[key] = Profile(len(profiles) + 1, job.tenant, speedups)
            fit = _fitted(job, profiles[key], wanted)
            spread = speeds.spread(job.model, key[2])
            job = replace(fit, spread=spread)  # noqa: PLW2901 - the same job, completed
        fitted.append(job)
    return tuple(fitted), {row.id: row for row in profiles.values()}


def _fitted(job: SimJob, profile: Profile, types: frozenset[str]) -> SimJob:
    able = {name for name, _ in profile.speedups}
    accepted = able & set(job.gpu_types) if job.gpu_types else able
    if not accepted:
        raise SpeedsError(f"job {job.name!r}: its model runs on no type that it accepts")
    gpu_types = () if accepted == types else tuple(sorted(accepted))
    return replace(job, profile=profile.id, gpu_types=gpu_types)
