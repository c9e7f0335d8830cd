"""The runs of `make reproduce` on UniSched's claims: policies, what they know, and seeds."""

from typing import Any

from evenshare_research.reproduce.deadline_runs import FIT, MAXIMUM, WORKLOADS, deadline_run
from evenshare_research.reproduce.runs import KeptRun

SEEDS = tuple(range(1, 11))
OURS = "unisched"
AWARE, OTHERS = ("three_sigma", "genie", "hydra"), ("optimus", "themis")
MIXES = WORKLOADS[1:]
# The greedy rule serves tenants in turn, and each tenant's jobs by the least GPU-time left, without
# a program.
GREEDY = "evenshare"
FITTED = "optimus, with the estimator"
COMPARED = (OURS, *AWARE, *OTHERS, FITTED, GREEDY)
POLICY_OF = {FITTED: "optimus"}
HAS_ESTIMATOR = {OURS, "themis", GREEDY, FITTED}
# (percent of noise, seed of the draw)
NOISES = ((20, 1), (40, 1), (40, 2), (40, 3))
FEW_SEEDS = SEEDS[:3]
NOISY_POLICIES = (OURS, "chronus", "optimus", GREEDY)
# The number of a tenant's jobs with deadlines is unlimited, as in the paper.
OPTIONS: dict[str, dict[str, Any]] = {
    OURS: {"reward_points_per_gpu": 10_000, "lease_multiple": 2},
    # Promised starts would go to the jobs that have waited longest.
    GREEDY: {"estimates": "deadlines", "promises": False},
}


def policy_run(workload: str, name: str, seed: int, **more: Any) -> KeptRun:
    """Return a run of a policy of the tables, with its options and what it knows of metrics."""
    knows = FIT if name in HAS_ESTIMATOR else MAXIMUM
    given = {"options": OPTIONS.get(name), "knows": knows} | more
    return deadline_run(workload, POLICY_OF.get(name, name), seed=seed, **given)


RUNS = {
    (workload, name, seed): policy_run(workload, name, seed)
    for seed in SEEDS
    for workload in WORKLOADS
    for name in COMPARED
}
NOISY = {
    (noise, name): policy_run("MIX2", name, noise[1], noise_percent=noise[0])
    for noise in NOISES
    for name in NOISY_POLICIES
}
EXACT = {
    (seed, name): policy_run("MIX2", name, seed)
    for seed in dict.fromkeys(seed for _, seed in NOISES)
    for name in NOISY_POLICIES
}
# Of seeds and policies that VI-C compares
CHRONUS = {
    (workload, name, seed): policy_run(workload, name, seed)
    for seed in FEW_SEEDS
    for workload in MIXES
    for name in (OURS, "chronus")
}
PROFILED = {workload: policy_run(workload, OURS, 1, profiling=True) for workload in WORKLOADS}
PARTS_LEFT_OUT: dict[str, dict[str, Any]] = {
    "complete": {},
    "speeds on several nodes unknown": {"use_estimator": False},
    "restarts not counted": {"count_restarts": False},
    "only consolidated": {"select": "consolidated"},
    "deadlines counted, not rewards": {"objective": "alike"},
    "no margin before deadlines": {"margin_percent": 0},
    "SLO leases of 5 min": {"lease_multiple": 1},
    "SLO leases of 30 min": {"lease_multiple": 6},
}
OWN_ABLATIONS = {
    name: policy_run("MIX1", OURS, 1, options=OPTIONS[OURS] | options)
    for name, options in PARTS_LEFT_OUT.items()
} | {"maximum of iterations": policy_run("MIX1", OURS, 1, knows=MAXIMUM)}
CHRONUS_ALONE = {"estimator": False, "selector": False}
CHRONUS_WITH = {
    "with the estimator": ({"estimator": True, "selector": False}, FIT),
    "with the selector": ({"estimator": False, "selector": True}, MAXIMUM),
}
ABLATIONS = {
    (workload, name): policy_run(workload, "chronus", 1, options=options, knows=knows)
    for workload in MIXES
    for name, (options, knows) in {"chronus": (CHRONUS_ALONE, MAXIMUM), **CHRONUS_WITH}.items()
}
