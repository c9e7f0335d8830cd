r"""Trains with PyTorch's DistributedDataParallel, and resumes after its lease ends.

    evenshare job submit --pool slurm --gpus 8 -- python examples/train_torch.py
    evenshare job submit --pool slurm --gpus 8 -- sh -c 'exec torchrun \
        --nnodes=$NNODES --node-rank=$NODE_RANK --nproc-per-node=4 \
        --master-addr=$MASTER_ADDR --master-port=$MASTER_PORT \
        --signals-to-handle=SIGUSR1,SIGTERM examples/train_torch.py'

The first command starts one process per node. The second starts one process per GPU, and torchrun
passes the checkpoint signal on to them. Each rank keeps its own checkpoint of the same step. The
program runs on CPUs (gloo). The last line is the SHA-256 of the weights. The hash depends only on
the seed and the numbers of steps and ranks, not on the number of interruptions. Outside the portal,
run it as a single process or under torchrun.
"""

import argparse
import hashlib
import io
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

try:
    from evenshare import lease
except ModuleNotFoundError:  # in a checkout without installed packages
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "client" / "src"))
    from evenshare import lease

FEATURES, HIDDEN, CLASSES, BATCH = 64, 256, 10, 128
SAY_EVERY = 100


def main() -> None:
    options = arguments()
    # With several threads, their number would change the order in which a sum is computed.
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    teacher = torch.randn(FEATURES, CLASSES)
    model: Any = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    # Each rank draws its own part of every batch.
    draws = torch.Generator().manual_seed(options.seed * 1000 + lease.rank())

    # The checkpoint contains no code, so it can be read with `weights_only`.
    lease.setup(save=to_bytes, load=from_bytes, every_s=options.every)
    start, saved = 0, lease.resume()
    if saved is not None:
        start = saved["step"]
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        draws.set_state(saved["draws"])
    print(f"rank {lease.rank()} begins at step {start} of {options.steps}", flush=True)

    trained = model
    if lease.world_size() > 1:
        dist.init_process_group("gloo")
        # Otherwise DDP rearranges its buckets after the first step. With four or more ranks, the
        # first step after a resume would then add up in a different order.
        trained = nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
    try:
        for step in lease.steps(start, options.steps):
            inputs = torch.randn(BATCH, FEATURES, generator=draws)
            labels = (inputs @ teacher).argmax(dim=1)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(trained(inputs), labels)
            loss.backward()
            optimizer.step()
            if lease.rank() == 0 and step % SAY_EVERY == SAY_EVERY - 1:
                print(f"step {step + 1} of {options.steps}  loss {loss.item():.4f}", flush=True)
            lease.report(loss=loss.item())
            lease.store(
                {
                    "step": step + 1,
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "draws": draws.get_state(),
                }
            )
            time.sleep(options.pause)
    finally:
        # This block also runs when the lease ends, because `store` then ends the program, on all
        # ranks after the same step.
        if dist.is_initialized():
            dist.destroy_process_group()
    print(f"rank {lease.rank()} weights {digest(model)}", flush=True)


def to_bytes(state: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def from_bytes(body: bytes) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(io.BytesIO(body), weights_only=True)
    return state


def digest(model: Any) -> str:
    whole = hashlib.sha256()
    for _, weights in sorted(model.state_dict().items()):
        whole.update(weights.numpy().tobytes())
    return whole.hexdigest()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small network with PyTorch.")
    parser.add_argument(
        "--steps", type=int, default=2000, help="total number of steps (default 2000)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=float, default=300.0, help="seconds between checkpoints")
    parser.add_argument(
        "--pause", type=float, default=0.0, help="pause after each step, in seconds"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
