"""A job's fields and reasons in words, written by `make fields`."""

from __future__ import annotations

from typing import NamedTuple


class JobField(NamedTuple):
    """One field of a job. `option` is empty where the command line does not ask for it."""

    name: str
    option: str
    shape: str
    is_required: bool
    is_shown: bool
    about: str


# What stands for an option where the words after it are the value.
COMMAND = "--"
JOB_FIELDS = (
    JobField(
        "pool",
        "--pool",
        "text",
        True,
        False,
        "The pool in which it runs.",
    ),
    JobField(
        "gpus",
        "--gpus",
        "whole",
        True,
        False,
        "GPUs, all at once or none.",
    ),
    JobField(
        "command",
        "--",
        "texts",
        False,
        False,
        "The program and its arguments; no shell reads them.",
    ),
    JobField(
        "name",
        "--name",
        "text",
        False,
        False,
        "Small letters, digits and hyphens; one is made up if left out.",
    ),
    JobField(
        "tenant",
        "--tenant",
        "text",
        False,
        False,
        "For whom it runs; needed by a member of several.",
    ),
    JobField(
        "profile",
        "--profile",
        "text",
        False,
        False,
        "Its job type, where your tenant has some in the pool.",
    ),
    JobField(
        "gpu_types",
        "--gpu-type",
        "texts",
        False,
        False,
        "An acceptable GPU type; any if none is named.",
    ),
    JobField(
        "max_price",
        "--max-price",
        "amount",
        False,
        False,
        "Highest price in credits per GPU-hour of a borrowed GPU; above it the job waits.",
    ),
    JobField(
        "utility",
        "--utility",
        "pairs",
        False,
        True,
        "What its end is worth: kind=bid, linear or convex, and its numbers.",
    ),
    JobField(
        "cpus",
        "--cpus",
        "whole",
        False,
        True,
        "CPUs that it needs in all; only dominant resource fairness counts them.",
    ),
    JobField(
        "memory_mb",
        "--memory",
        "whole",
        False,
        True,
        "Memory that it needs in all, in MB; counted where CPUs are.",
    ),
    JobField(
        "environment",
        "--env",
        "pairs",
        False,
        False,
        "Variables of its process; others of your tenant can read them.",
    ),
    JobField(
        "weight",
        "--weight",
        "whole",
        False,
        False,
        "Its share among your tenant's jobs.",
    ),
    JobField(
        "duration_s",
        "",
        "whole",
        False,
        False,
        "How long it runs, in seconds of the time of a pool of virtual jobs.",
    ),
    JobField(
        "job_class",
        "--class",
        "text",
        False,
        True,
        "best_effort, strict_slo or soft_slo; strict_slo with a deadline alone.",
    ),
    JobField(
        "deadline",
        "--deadline",
        "text",
        False,
        True,
        "By when it is to end: a duration such as 2h30m, or an instant of pool time.",
    ),
    JobField(
        "deadline_steps",
        "--deadline-steps",
        "texts",
        False,
        True,
        "Of soft_slo: percent of the time to its deadline, and points by then, as 110:80.",
    ),
    JobField(
        "estimate_s",
        "--estimate",
        "whole",
        False,
        True,
        "How long you expect it to run, in seconds on its slowest GPU type.",
    ),
    JobField(
        "iterations",
        "--iterations",
        "whole",
        False,
        True,
        "How many iterations it makes in all; the most, with stop_when.",
    ),
    JobField(
        "stop_when",
        "--stop-when",
        "text",
        False,
        True,
        "The metric by which it ends before that, such as accuracy>=0.93.",
    ),
    JobField(
        "comment",
        "--comment",
        "text",
        False,
        True,
        "A note for people, one line; nothing reads it.",
    ),
)
LIMITS = {
    "length": "it takes longer than that, even on a pool of its own",
    "quota": "its tenant may not have so many GPUs until then",
    "capacity": "others have the GPUs until then",
    "size": "the pool never has so many GPUs free at once",
    "budget": "other jobs of its tenant have all the points that it may ask for",
}
GPU_STATES = {
    "absent": "nvidia-smi is not there on its node",
    "failed": "nvidia-smi failed there, and is not asked any more",
    "asked": "nvidia-smi has not answered so far",
    "none": "CUDA_VISIBLE_DEVICES gave it no GPU, or a part of one (MIG), of which nothing is told",
}
