r"""Trains a small network, and resumes exactly where it stopped when its lease ended.

    evenshare job submit --pool local --gpus 2 -- python examples/train.py

The last line prints the SHA-256 of the weights. On the same machine and environment, it depends
only on the seed and the number of steps, not on the number of preemptions. The program also runs
outside the portal; with `--keep FOLDER` it resumes from its last checkpoint. Every 20 steps it
reports its accuracy, and it ends once the accuracy meets the job's stop criterion:

    evenshare job submit --pool local --gpus 2 --iterations 6000 --stop-when "accuracy>=0.9" \
        -- python examples/train.py
"""

import argparse
import hashlib
import io
import json
import os
import sys
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

Arrays = dict[str, "np.ndarray[Any, Any]"]
FEATURES, HIDDEN, CLASSES, BATCH = 64, 1024, 10, 512
RATE, MOMENTUM = 0.05, 0.9
SAY_EVERY, EVALUATE_EVERY, HELD_OUT = 200, 20, 4096


def main() -> None:
    options = arguments()
    lease.setup(save=to_bytes, load=from_bytes, directory=options.keep)
    state = lease.resume(default=lambda: fresh(options.seed))
    teacher = np.random.default_rng(7).normal(size=(FEATURES, CLASSES))
    held_out = np.random.default_rng(8).normal(size=(HELD_OUT, FEATURES))
    if state["step"]:
        print(f"resumed at step {state['step']} of {options.steps}", flush=True)
    for step in lease.steps(int(state["step"]), options.steps):
        loss = train(state, teacher)
        state["step"] = step + 1
        if step % SAY_EVERY == SAY_EVERY - 1:
            print(f"step {step + 1} of {options.steps}  loss {loss:.4f}", flush=True)
        lease.report(loss=loss)
        if (step + 1) % EVALUATE_EVERY == 0:
            lease.report(accuracy=accuracy(state["arrays"], held_out, teacher))
        lease.store(state)
        if lease.reached():
            print(f"reached its criterion at step {step + 1}", flush=True)
            break
    if options.out:
        options.out.write_bytes(to_bytes(state))
    print(f"weights {digest(state['arrays'])}", flush=True)


def train(state: dict[str, Any], teacher: "np.ndarray[Any, Any]") -> float:
    """Do one step of gradient descent with momentum, on a batch from the state's generator."""
    arrays: Arrays = state["arrays"]
    inputs = state["random"].normal(size=(BATCH, FEATURES))
    labels = np.argmax(inputs @ teacher, axis=1)
    hidden = np.maximum(inputs @ arrays["w1"] + arrays["b1"], 0.0)
    scores = hidden @ arrays["w2"] + arrays["b2"]
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    loss = -np.log(chances[np.arange(BATCH), labels] + 1e-12).mean()

    chances[np.arange(BATCH), labels] -= 1.0
    chances /= BATCH
    back = (chances @ arrays["w2"].T) * (hidden > 0)
    slopes = {
        "w1": inputs.T @ back,
        "b1": back.sum(axis=0),
        "w2": hidden.T @ chances,
        "b2": chances.sum(axis=0),
    }
    for name, slope in slopes.items():
        arrays[f"v_{name}"] = MOMENTUM * arrays[f"v_{name}"] - RATE * slope
        arrays[name] = arrays[name] + arrays[f"v_{name}"]
    return float(loss)


def accuracy(
    arrays: Arrays, inputs: "np.ndarray[Any, Any]", teacher: "np.ndarray[Any, Any]"
) -> float:
    """Return the fraction of unseen inputs that get the teacher's class."""
    hidden = np.maximum(inputs @ arrays["w1"] + arrays["b1"], 0.0)
    said = np.argmax(hidden @ arrays["w2"] + arrays["b2"], axis=1)
    return float((said == np.argmax(inputs @ teacher, axis=1)).mean())


def fresh(seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    arrays = {
        "w1": random.normal(size=(FEATURES, HIDDEN)) / np.sqrt(FEATURES),
        "b1": np.zeros(HIDDEN),
        "w2": random.normal(size=(HIDDEN, CLASSES)) / np.sqrt(HIDDEN),
        "b2": np.zeros(CLASSES),
    }
    arrays.update({f"v_{name}": np.zeros_like(array) for name, array in list(arrays.items())})
    return {"step": 0, "arrays": arrays, "random": random}


def to_bytes(state: dict[str, Any]) -> bytes:
    """Return weights, momentum, position and generator, on which the next step depends."""
    file = io.BytesIO()
    generator = json.dumps(state["random"].bit_generator.state)
    np.savez(file, step=state["step"], generator=generator, **state["arrays"])
    return file.getvalue()


def from_bytes(body: bytes) -> dict[str, Any]:
    with np.load(io.BytesIO(body), allow_pickle=False) as saved:
        arrays = {name: saved[name] for name in saved.files}
    random = np.random.default_rng()
    random.bit_generator.state = json.loads(str(arrays.pop("generator")))
    return {"step": int(arrays.pop("step")), "arrays": arrays, "random": random}


def digest(arrays: Arrays) -> str:
    whole = hashlib.sha256()
    for name in sorted(arrays):
        whole.update(np.ascontiguousarray(arrays[name]).tobytes())
    return whole.hexdigest()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small network.")
    parser.add_argument(
        "--steps", type=int, default=6000, help="total number of steps (default 6000)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write the final state to this file")
    parser.add_argument("--keep", type=Path, help="outside the portal: folder for checkpoints")
    return parser.parse_args()


if __name__ == "__main__":
    main()
