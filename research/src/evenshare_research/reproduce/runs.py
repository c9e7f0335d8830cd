"""Runs of simulations and calculations with given parameters, and their stored results.

A result is plain JSON in a file. The file's name is the digest of the parameters and of all code
used by the run. So an interrupted report continues where it stopped, and a result is not used after
its code has changed. Code that judges results or writes the report is not part of the digest. So no
run is repeated because a sentence of the report changed.
"""

from __future__ import annotations

import ast
import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import evenshare_core

SOURCES = Path(__file__).resolve().parents[2]
ROOT = SOURCES.parents[1]
DATA = ROOT / "research" / "data"
TWO_DAYS = ROOT / "portal" / "demo" / "data" / "philly_2017-10-20.csv.gz"
KEPT = ROOT / ".data" / "reproduce"
Value = Any  # plain JSON


@dataclass(frozen=True, slots=True)
class KeptRun:
    """A run: a function, as "package.module:name", with its arguments as plain JSON.

    `label` is for messages. `about_s` is the approximate time on one core.
    """

    function: str
    arguments: str
    label: str
    about_s: int

    @classmethod
    def of(cls, function: str, label: str, about_s: int, **arguments: Value) -> KeptRun:
        return cls(function, json.dumps(arguments, sort_keys=True), label, about_s)

    @property
    def module(self) -> str:
        return self.function.partition(":")[0]

    @property
    def path(self) -> Path:
        key = f"{self.function}\n{self.arguments}\n{code_digest(self.module)}"
        return KEPT / f"{sha256(key.encode()).hexdigest()[:32]}.json"

    def kept(self) -> Value | None:
        """Return the stored result, or None if it is missing or incomplete."""
        try:
            return json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None


@cache
def code_digest(module: str) -> str:
    """Return the digest of the core, the policies, the traces, and a module with its imports.

    Modules outside this package are ignored.
    """
    digest = sha256()
    core = Path(evenshare_core.__file__).resolve().parent
    policies = (path for path in SOURCES.rglob("*.py") if "reproduce" not in path.parts)
    for path in sorted([*core.rglob("*.py"), *policies, *DATA.iterdir(), *_sources(module)]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _sources(module: str) -> set[Path]:
    """Return the files of a module and of its direct and indirect imports in this package."""
    sources: set[Path] = set()
    names = [module]
    while names:
        path = SOURCES.joinpath(*names.pop().split(".")).with_suffix(".py")
        if path in sources or not path.is_file():
            continue
        sources.add(path)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return sources


def perform(run: KeptRun) -> tuple[Value, float]:
    """Execute a run in this process and store its result. Return it with its CPU seconds."""
    name = run.function.partition(":")[2]
    function: Callable[..., Value] = getattr(import_module(run.module), name)
    began = time.process_time()
    result = function(**json.loads(run.arguments))
    cpu_s = time.process_time() - began
    KEPT.mkdir(parents=True, exist_ok=True)
    part = run.path.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps(result), encoding="utf-8")
    part.replace(run.path)
    return result, cpu_s


def perform_all(
    runs: Iterable[KeptRun], *, processes: int, say: Callable[[str], None]
) -> Mapping[KeptRun, Value]:
    """Execute the runs that have no stored result, the longest first. Return all results."""
    wanted = list(dict.fromkeys(runs))
    results = {run: value for run in wanted if (value := run.kept()) is not None}
    missing = sorted((run for run in wanted if run not in results), key=lambda run: -run.about_s)
    left_s = sum(run.about_s for run in missing)
    say(
        f"{len(results)} of {len(wanted)} runs are kept from before; the others take about"
        f" {minutes(left_s / processes)} on {processes} {'core' if processes == 1 else 'cores'}"
    )
    for number, (run, value, cpu_s) in enumerate(_spread(missing, processes), 1):
        results[run] = value
        left_s -= run.about_s
        say(
            f"{number:>3}/{len(missing)}  {run.label}: {cpu_s:.0f} s;"
            f" about {minutes(left_s / processes)} left"
        )
    return results


def _spread(runs: list[KeptRun], processes: int) -> Iterator[tuple[KeptRun, Value, float]]:
    if processes == 1:
        for run in runs:
            yield (run, *perform(run))
        return
    with ProcessPoolExecutor(processes) as pool:
        asked = {pool.submit(perform, run): run for run in runs}
        try:
            for done in as_completed(asked):
                yield (asked[done], *done.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def minutes(seconds: float) -> str:
    """Return a time as text: "12 min", or "40 s" if it is below a minute and a half."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def machine() -> str:
    """Return a description of this machine's size, without its name."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores, {memory_gib:.0f} GiB, {platform.system()} {platform.machine()},"
        f" Python {platform.python_version()}"
    )
