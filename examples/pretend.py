"""Counts seconds instead of training, for pools without real GPUs such as the demo's `slurm`.

    evenshare job submit --pool slurm --gpus 8 --gpu-type a100 -- python examples/pretend.py

It reports its progress, stops at the checkpoint signal, and resumes counting where it stopped. In a
gang over several nodes the first rank counts, and the other ranks wait for it.
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

try:
    from evenshare import lease
except ModuleNotFoundError:  # in a checkout without installed packages
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "client" / "src"))
    from evenshare import lease

SAY_EVERY = 10


def main() -> None:
    parser = argparse.ArgumentParser(description="Count seconds.")
    parser.add_argument("--seconds", type=int, default=60, help="number of seconds (default 60)")
    seconds: int = parser.parse_args().seconds
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    # Only the first rank writes checkpoints and progress. It waits for no other rank.
    lease.setup(alone=True)
    begun = int(lease.resume(default={"second": 0})["second"]) if rank == 0 else 0
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES") or "none"
    nodes = os.environ.get("EVENSHARE_NODES") or os.environ.get("SLURM_JOB_NODELIST") or "here"
    where = nodes.split(",")[rank] if ranks > 1 else nodes
    after = f", resumed after {begun} s" if begun else ""
    print(f"rank {rank} of {ranks} on {where}, GPUs {gpus}{after}", flush=True)
    if rank == 0:
        lead(begun, seconds)
    else:
        follow(seconds)


def lead(begun: int, seconds: int) -> None:
    for second in lease.steps(begun, seconds):
        time.sleep(1)
        if (second + 1) % SAY_EVERY == 0:
            print(f"{second + 1} of {seconds} s", flush=True)
        lease.store({"second": second + 1})
    print("done", flush=True)


def follow(seconds: int) -> None:
    """Wait for the first rank, as ranks do in every training step. This rank has no state."""
    signal.signal(signal.SIGUSR1, lambda *_: sys.exit(99))
    while counted() < seconds:
        time.sleep(1)


def counted() -> int:
    """Return the seconds that the first rank has reported."""
    try:
        return int(json.loads(Path(os.environ["EVENSHARE_PROGRESS"]).read_text())["step"])
    except (OSError, ValueError, KeyError):
        return 0


if __name__ == "__main__":
    main()
