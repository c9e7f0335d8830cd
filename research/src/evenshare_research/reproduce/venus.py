"""Jobs on the quotas of Venus, without its job log: LTGF's 6.3 and 6.4, with drawn jobs.

The daily GPUs of each virtual cluster of Venus are public (HeliosData). Gangs and lengths are drawn
from those of Philly. Tenants are drawn in proportion to their quotas times a random factor. So
quotas and demand differ, as in a real cluster. With `quotas_by_demand`, quotas would be in
proportion to demand.
"""

import csv
import random
from typing import Any

from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.simulation.state import Rules
from evenshare_core.simulation.trace_formats import trace_lines
from evenshare_core.simulation.workloads import (
    ONE_TYPE,
    Cluster,
    SimJob,
    make_nodes,
    noisy_estimates,
    read_workload,
)
from evenshare_core.units import HOUR_US
from evenshare_research.reproduce.ltgf import ABOUT_S, SEVEN, SOURCE, least_claims
from evenshare_research.reproduce.model import Findings, Part, Results
from evenshare_research.reproduce.philly import (
    COLD_US,
    ERROR,
    LEASE_US,
    NODE_GPUS,
    SEED,
    TRACE,
    simulated_row,
)
from evenshare_research.reproduce.runs import DATA, KeptRun
from evenshare_research.reproduce.shown import CLAIMED, figures_table, rho_chart, slowdown_chart

GPUS_BY_DAY = DATA / "venus_gpus.csv"
# The day was chosen before any run on it. The paper's slice has this number of tenants.
DAY, TENANTS = "2020-07-01", 16
HOURS = 4
# The jobs' work divided by the GPU-time of the hours. It exceeds 1, so jobs still run after these
# hours.
ASKED = 2.5
# Longer jobs are excluded, because a few jobs of weeks would be most of the work and leave nodes
# free.
MOST_H = 24
# standard deviation of the logarithm of demand divided by quota
APPETITE = 0.75


def venus_quotas(day: str, tenants: int = TENANTS) -> dict[str, int]:
    """Return the GPUs of the largest virtual clusters on a day, by name, the largest first."""
    with GPUS_BY_DAY.open(encoding="utf-8", newline="") as file:
        (row,) = (row for row in csv.DictReader(file) if row["date"] == day)
    counts = {name: int(row[name]) for name in row if name.startswith("vc") and int(row[name])}
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:tenants])


def draw_jobs(quotas: dict[str, int], hours: int, seed: int) -> tuple[SimJob, ...]:
    """Return jobs of some hours. Their work is `ASKED` times what the quotas can do in these hours.

    No gang is larger than its tenant's quota.
    """
    rng = random.Random(seed)  # noqa: S311 - a workload, not a secret
    with TRACE.open("rb") as file:
        jobs = read_workload(trace_lines(file)[1]).jobs
    pool = [(job.gpus, job.duration_us) for job in jobs if job.duration_us <= MOST_H * HOUR_US]
    gpus = list(quotas.values())
    weights = [count * rng.lognormvariate(0, APPETITE) for count in gpus]
    left_us = ASKED * sum(gpus) * hours * HOUR_US
    drawn = []
    while left_us > 0:
        (tenant,) = rng.choices(range(len(gpus)), weights)
        gang, duration_us = rng.choice(pool)
        if gang > gpus[tenant]:
            continue
        left_us -= gang * duration_us
        drawn.append((rng.randrange(hours * HOUR_US), tenant + 1, gang, duration_us))
    chosen = tuple(
        SimJob(number, tenant, gang, submitted_us, duration_us, estimate_us=duration_us)
        for number, (submitted_us, tenant, gang, duration_us) in enumerate(sorted(drawn), 1)
    )
    return noisy_estimates(chosen, SEED, ERROR)


def run(
    *, day: str, tenants: int, hours: int, seed: int, policy: str, options: dict[str, Any]
) -> dict[str, Any]:
    """Simulate with a round at every event, and return the figures in seconds and shares."""
    quotas = venus_quotas(day, tenants)
    jobs = draw_jobs(quotas, hours, seed)
    nodes = make_nodes({ONE_TYPE: -(-sum(quotas.values()) // NODE_GPUS)}, NODE_GPUS)
    rows = tuple(
        Entitlement(tenant, ONE_TYPE, gpus) for tenant, gpus in enumerate(quotas.values(), 1)
    )
    cluster = Cluster(nodes, rows)
    rules = Rules(policy, options, 0, LEASE_US, cold_us=COLD_US)
    return simulated_row(cluster, jobs, rules)


def _run(name: str, policy: str, options: dict[str, Any]) -> KeptRun:
    return KeptRun.of(
        f"{__name__}:run", f"Venus, {DAY}: {name}", 2 * ABOUT_S.get(policy, 5),
        day=DAY, tenants=TENANTS, hours=HOURS, seed=SEED, policy=policy, options=options,
    )  # fmt: skip # rows of what belongs together


_RUNS = {name: _run(name, policy, options) for name, policy, options in SEVEN}


def _judge(results: Results) -> Findings:
    rows = {name: results[run] for name, run in _RUNS.items()}
    charts = [
        rho_chart("Job-level fairness on Venus's quotas", rows.items()),
        slowdown_chart("Slowdown of jobs on Venus's quotas", rows.items()),
    ]
    return Findings(
        least_claims(rows), [figures_table("Seven policies", rows.items(), CLAIMED)], charts
    )


_RAN = (
    "The jobs are drawn at random and are not those of Venus. Their gangs and lengths are those"
    f" of Philly's jobs of up to a day, drawn with seed {SEED}, and they arrive within {HOURS}"
    f" hours. The quotas are the GPUs of the {TENANTS} largest virtual clusters of Venus on"
    f" {DAY}, on nodes of {NODE_GPUS} GPUs. A tenant's demand is its quota times a log-normal"
    f" factor (deviation {APPETITE}). No gang exceeds its tenant's quota. The total demand is"
    f" {ASKED} times the capacity of these GPUs in these hours, chosen so that jobs wait under"
    " `ltgf`. A round takes place at every event. Cold starts take 30 s, leases 900 s; estimates"
    " are wrong by up to 30 %."
)
PARTS = (
    Part(
        "ltgf-venus",
        "LTGF: drawn jobs on the quotas of Venus",
        SOURCE,
        _RAN,
        list(_RUNS.values()),
        _judge,
    ),
)
