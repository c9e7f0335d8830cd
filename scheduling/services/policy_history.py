"""Replays a pool's last days under its own policy and others, from the same inputs and seed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from evenshare_core.cli.collector import rare_collections
from evenshare_core.domain.values import canonical_bytes, sha256_hex
from evenshare_core.policies.registry import missing_text
from evenshare_core.simulation.policy_runs import PolicyRun, run_rules, stated_rules
from evenshare_core.simulation.state import Rules
from scheduling.selectors.stored_texts import LEFT_OUT, POLICY_CHANGED
from scheduling.services.past_runs import PastRunError, read_past, read_runs
from scheduling.services.pool_export import PoolExport
from tenants.models import Tenant
from tenants.scopes import site_scope

# Options of `simulate` that state a run, next to its files, its seed and its policies.
_STATED = ("start", "round_s", "lease_s", "least_lease_s", "most_lease_s", "estimates")


@dataclass(frozen=True, slots=True)
class PolicyHistory:
    """The results of a replay. `start`: the start of the runs (pool time).

    `inputs_sha256`: the hash of jobs, nodes, quotas, prices, profiles, settings, seed and policies.
    `tenants`: the figures of each tenant by its id, in the order of `policies`. `remarks`: what the
    runs ignore.
    """

    start: str
    seed: int
    jobs: int
    inputs_sha256: str
    policies: list[dict[str, Any]]
    pool: list[dict[str, Any]]
    tenants: dict[str, list[dict[str, Any]]]
    remarks: list[str]


def replay_history(
    pool: str,
    *,
    days: int,
    until: datetime,
    own: str,
    others: Sequence[str],
    seed: int,
    progress: Callable[[int, int, float], None],
) -> PolicyHistory:
    """Run the jobs of a pool's last `days` before `until` under its policy and under `others`.

    The pool's policy, `own` at the request, has its options; the others have their defaults.
    Policies that are no longer installed are left out, with a remark. `progress` is called after
    each simulated round with the index of the run, the number of runs, and the run's share of ended
    jobs.

    Raises:
        PastRunError: there is no node, no job in these days, or no policy; an option is invalid; or
            the pool has another policy now.
    """
    export, options = read_past(pool, days=days, until=until)
    if options["policy"] != own:
        raise PastRunError(POLICY_CHANGED)
    policies, remarks = _installed([options["policy"], *others])
    options["seed"] = seed
    options["option"] = [text for text in options["option"] if text.partition(".")[0] in policies]
    scenario, runs = read_runs(export, options, [{"policy": ",".join(policies)}])
    done: list[PolicyRun] = []
    jobs = len(scenario.workload.jobs)
    for index, rules in enumerate(runs):
        report = _reports(progress, index, len(runs), jobs)
        with rare_collections():
            done.append(run_rules(scenario, rules, progress=report))
    return PolicyHistory(
        start=options["start"],
        seed=seed,
        jobs=jobs,
        inputs_sha256=_inputs_sha256(export, options, runs),
        policies=[_stated(run) for run in done],
        pool=[asdict(run.pool) for run in done],
        tenants=_by_id(scenario.workload.tenants, done),
        remarks=[*remarks, *export.remarks],
    )


def _installed(policies: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the installed ones of these policies, and a remark about each other one."""
    missing = {name: text for name in policies if (text := missing_text(name))}
    if len(missing) == len(policies):
        raise PastRunError("; ".join(missing.values()))
    texts = [LEFT_OUT.format(why=text) for text in missing.values()]
    return [name for name in policies if name not in missing], texts


def _reports(
    progress: Callable[[int, int, float], None], run: int, runs: int, jobs: int
) -> Callable[[int], None]:
    return lambda ended: progress(run, runs, ended / jobs)


def _inputs_sha256(export: PoolExport, options: Mapping[str, Any], runs: Sequence[Rules]) -> str:
    inputs = {
        "files": dict(export.files),
        "options": {name: options[name] for name in _STATED},
        "seed": options["seed"],
        "policies": [stated_rules(rules) for rules in runs],
    }
    return sha256_hex(canonical_bytes(inputs))


def _stated(run: PolicyRun) -> dict[str, Any]:
    return {
        "policy": run.policy,
        "version": run.version,
        "options": run.options,
        "rounds": run.rounds,
        "sha256": run.sha256,
    }


def _by_id(slugs: Mapping[int, str], runs: Sequence[PolicyRun]) -> dict[str, list[dict[str, Any]]]:
    """Return the figures of each tenant's runs by the tenant's id; `slugs` are by its number."""
    with site_scope():
        rows = Tenant.objects.filter(slug__in=slugs.values())
        ids = dict(rows.values_list("slug", "pk"))
    return {
        str(ids[slug]): [asdict(run.tenants[number]) for run in runs]
        for number, slug in slugs.items()
        if slug in ids
    }
