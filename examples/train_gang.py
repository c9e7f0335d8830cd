"""Trains on several nodes at once, and resumes exactly where it stopped when its lease ended.

    evenshare job submit --pool slurm --gpus 8 -- python examples/train_gang.py

There is one process per node (RANK of WORLD_SIZE). Each process draws its own part of every batch.
Rank 0 adds up the gradients over connections (MASTER_ADDR, MASTER_PORT), in the order of ranks.
Each rank keeps its own checkpoint of the same step. The last line is the SHA-256 of the weights,
which is the same on every rank. It depends only on the seed and the numbers of steps and ranks, not
on the number of interruptions. Outside the portal, run it as a single process, or as several:
`RANK=0 WORLD_SIZE=2 ... &`.
"""

import argparse
import hashlib
import io
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

# With several threads, their number would change the order in which a sum is computed.
for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np  # noqa: E402 - it reads the number of threads when it is imported

try:
    from evenshare import lease
except ModuleNotFoundError:  # in a checkout without installed packages
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "client" / "src"))
    from evenshare import lease

Array = np.ndarray[Any, np.dtype[np.float64]]
FEATURES, CLASSES, BATCH = 64, 10, 256
RATE = 0.05
SAY_EVERY = 200
CONNECT_PATIENCE_S = 120.0


class Ranks:
    """The connections of all ranks to rank 0, which adds up their arrays."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._peers: list[socket.socket] = []
        if size == 1:
            return
        where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if rank == 0:
            self._peers = self._accepted(where[1])
        else:
            self._peers = [self._connected(where)]

    def sum(self, array: Array) -> Array:
        """Return the sum of the arrays of all ranks; it is bit-identical on all ranks."""
        if self.rank == 0:
            for peer in self._peers:
                array = array + self._received(peer, array)
            for peer in self._peers:
                peer.sendall(array.tobytes())
        else:
            self._peers[0].sendall(array.tobytes())
            array = self._received(self._peers[0], array)
        return array

    def _accepted(self, port: int) -> list[socket.socket]:
        peers: dict[int, socket.socket] = {}
        with socket.create_server(("", port)) as server:
            server.settimeout(CONNECT_PATIENCE_S)
            while len(peers) < self.size - 1:
                peer, _ = server.accept()
                peer.settimeout(None)
                peers[int.from_bytes(_exactly(peer, 4), "big")] = peer
        return [peers[rank] for rank in sorted(peers)]

    def _connected(self, where: tuple[str, int]) -> socket.socket:
        deadline = time.monotonic() + CONNECT_PATIENCE_S
        while True:
            try:
                peer = socket.create_connection(where)
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
                continue
            peer.sendall(self.rank.to_bytes(4, "big"))
            return peer

    def _received(self, peer: socket.socket, like: Array) -> Array:
        return np.frombuffer(_exactly(peer, like.nbytes), like.dtype).reshape(like.shape)


def _exactly(peer: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = peer.recv(count - len(data))
        if not part:
            raise ConnectionError("another rank is gone")
        data += part
    return bytes(data)


def main() -> None:
    options = arguments()
    lease.setup(save=to_bytes, load=from_bytes, every_s=options.every)
    state = lease.resume(default=lambda: fresh(options.seed, lease.rank()))
    ranks = Ranks(lease.rank(), lease.world_size())
    teacher = np.random.default_rng(7).normal(size=(FEATURES, CLASSES))
    print(f"rank {ranks.rank} begins at step {state['step']} of {options.steps}", flush=True)
    for step in lease.steps(int(state["step"]), options.steps):
        loss = train(state, teacher, ranks)
        state["step"] = step + 1
        if ranks.rank == 0 and step % SAY_EVERY == SAY_EVERY - 1:
            print(f"step {step + 1} of {options.steps}  loss {loss:.4f}", flush=True)
        lease.report(loss=loss)
        lease.store(state)
        time.sleep(options.pause)
    print(f"rank {ranks.rank} weights {hashlib.sha256(state['weights']).hexdigest()}", flush=True)


def train(state: dict[str, Any], teacher: Array, ranks: Ranks) -> float:
    """Do one step of gradient descent on the batch, of which each rank drew a part."""
    inputs = state["random"].normal(size=(BATCH, FEATURES))
    labels = np.argmax(inputs @ teacher, axis=1)
    scores = inputs @ state["weights"]
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    loss = -np.log(chances[np.arange(BATCH), labels] + 1e-12).mean()
    chances[np.arange(BATCH), labels] -= 1.0
    # Send the loss with the gradients, so that each step needs only one sum.
    slopes = np.append((inputs.T @ chances / BATCH).ravel(), loss)
    mean = ranks.sum(slopes) / ranks.size
    state["weights"] = state["weights"] - RATE * mean[:-1].reshape(FEATURES, CLASSES)
    return float(mean[-1])


def fresh(seed: int, rank: int) -> dict[str, Any]:
    weights = np.random.default_rng(seed).normal(size=(FEATURES, CLASSES)) / np.sqrt(FEATURES)
    return {"step": 0, "weights": weights, "random": np.random.default_rng([seed, rank])}


def to_bytes(state: dict[str, Any]) -> bytes:
    """Return weights, position and this rank's generator, on which its next step depends."""
    file = io.BytesIO()
    generator = json.dumps(state["random"].bit_generator.state)
    np.savez(file, step=state["step"], weights=state["weights"], generator=generator)
    return file.getvalue()


def from_bytes(body: bytes) -> dict[str, Any]:
    with np.load(io.BytesIO(body), allow_pickle=False) as saved:
        random = np.random.default_rng()
        random.bit_generator.state = json.loads(str(saved["generator"]))
        return {"step": int(saved["step"]), "weights": saved["weights"], "random": random}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small network on several nodes.")
    parser.add_argument(
        "--steps", type=int, default=3000, help="total number of steps (default 3000)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=float, default=300.0, help="seconds between checkpoints")
    parser.add_argument(
        "--pause", type=float, default=0.0, help="pause after each step, in seconds"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
