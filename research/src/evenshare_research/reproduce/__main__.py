"""`python -m evenshare_research.reproduce [PART ...]`: check papers' claims on public data.

The command performs the missing runs, and prints the expected time of each part before it starts.
It keeps each result, so that an interrupted command can continue. It writes a page with charts to
`.data/reproduce/`. With `--write`, it also updates docs/reproduce for every part whose results are
all kept. Other parts stay unchanged.
"""

import argparse
import os
import sys
from datetime import UTC, datetime

from evenshare_research.reproduce import (
    gandiva_fair,
    ltgf,
    market,
    oef,
    oef_proofs,
    slices,
    unisched,
    unseen,
    venus,
)
from evenshare_research.reproduce.model import Findings, Part
from evenshare_research.reproduce.report import FOLDER, documents, page
from evenshare_research.reproduce.runs import KEPT, machine, minutes, perform_all

PARTS: tuple[Part, ...] = (
    *ltgf.PARTS,
    *venus.PARTS,
    *gandiva_fair.PARTS,
    *oef_proofs.PARTS,
    *oef.PARTS,
    *market.PARTS,
    *unisched.PARTS,
    *slices.PARTS,
    *unseen.PARTS,
)


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    if options.list:
        for part in PARTS:
            mark = "  (long: by name only)" if part.is_long else ""
            print(f"{part.name:<18} {minutes(part.about_s):>7} on one core  {part.title}{mark}")
        return 0
    chosen = [part for part in PARTS if part.name in options.parts] or [
        part for part in PARTS if not part.is_long
    ]
    for part in chosen:
        print(f"{part.name}: about {minutes(part.about_s)} on one core. {part.title}", flush=True)
    results = perform_all(
        [run for part in chosen for run in part.runs],
        processes=options.processes,
        say=lambda text: print(text, flush=True),
    )
    measured = f"{datetime.now(UTC).date().isoformat()}."
    path = KEPT / "report.html"
    KEPT.mkdir(parents=True, exist_ok=True)
    path.write_text(page(_all_parts(), f"Made {measured[:-1]} on {machine()}."), encoding="utf-8")
    print(f"\nThe report with charts: {path}")
    if options.write:
        before = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
        for name, text in documents(_all_parts(), measured, before).items():
            (FOLDER / name).write_text(text, encoding="utf-8")
        print(f"and as text: {FOLDER}")
    else:
        done = [(part, part.judge(results)) for part in chosen]
        print("\n".join(documents(done, measured).values()))
    return 0


def _all_parts() -> list[tuple[Part, Findings | None]]:
    """Return every part, with its findings if the results of all its runs are kept."""
    done: list[tuple[Part, Findings | None]] = []
    for part in PARTS:
        kept = {run: run.kept() for run in part.runs}
        done.append((part, None if None in kept.values() else part.judge(kept)))
    return done


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m evenshare_research.reproduce")
    names = ", ".join(part.name for part in PARTS)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {names}")
    parser.add_argument("--list", action="store_true", help="name the parts and their time")
    parser.add_argument("--write", action="store_true", help="write docs/reproduce")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="(%(default)s)")
    options = parser.parse_args(arguments)
    for name in options.parts:
        if name not in {part.name for part in PARTS}:
            parser.error(f"no part is named {name!r}; there are {names}")
    if options.processes < 1:
        parser.error("--processes: use 1 or more")
    return options


if __name__ == "__main__":
    sys.exit(main())
