"""Counts seconds where others train: for pools whose GPUs are none, as the demo's `slurm`.

    evenshare job submit --pool slurm --gpus 8 --gpu-type a100 -- python examples/pretend.py

It reports how far it is, yields when it is asked to, and goes on where it was. Of a gang over
several nodes every rank counts, and the first one speaks for all.
"""

import argparse
import os
import sys
import time
from pathlib import Path

try:
    from evenshare import lease
except ModuleNotFoundError:  # in a checkout where nothing has been installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "client" / "src"))
    from evenshare import lease

SAY_EVERY = 10


def main() -> None:
    parser = argparse.ArgumentParser(description="Count seconds.")
    parser.add_argument("--seconds", type=int, default=60, help="how many (default 60)")
    seconds: int = parser.parse_args().seconds
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    begun = int(lease.resume(default={"second": 0})["second"])
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES") or "none"
    nodes = os.environ.get("EVENSHARE_NODES") or os.environ.get("SLURM_JOB_NODELIST") or "here"
    where = nodes.split(",")[rank] if ranks > 1 else nodes
    after = f", resumed after {begun} s" if begun else ""
    print(f"rank {rank} of {ranks} on {where}, GPUs {gpus}{after}", flush=True)
    # The checkpoint and the progress of a job are one rank's to write.
    if rank == 0:
        lead(begun, seconds)
    else:
        follow(begun, seconds)


def lead(begun: int, seconds: int) -> None:
    for second in lease.steps(begun, seconds):
        time.sleep(1)
        if (second + 1) % SAY_EVERY == 0:
            print(f"{second + 1} of {seconds} s", flush=True)
        lease.store({"second": second + 1})
    print("done", flush=True)


def follow(begun: int, seconds: int) -> None:
    for _ in range(begun, seconds):
        time.sleep(1)
        if lease.ending():
            lease.leave()


if __name__ == "__main__":
    main()
