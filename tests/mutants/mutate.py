"""`make mutate`: change the code that decides, writes and charges, and check that a test fails.

For each module of `tests.mutants.guarded.GUARDED`, a sample of changes is made in a copy of the
tree, one at a time. The module's guarding tests run after each change. A change is killed if a test
fails or cannot be collected, or if the tests take many times as long as without it. The report
lists the changes that survive.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.mutants.changes import Change, draw_changes
from tests.mutants.guarded import GUARDED, Guarded
from tests.mutants.laboratory import MUTANT_PATIENCE_S, Laboratory, Nursery

SAMPLE = 40
LIMIT_S, LIMIT_TIMES = 60.0, 4
# All other results of pytest count as killed: failed, interrupted, or not collected.
SURVIVED, NOTHING_RAN = 0, 5


class UnguardedError(Exception):
    """The tests fail or do not run on the unchanged code."""


@dataclass
class Score:
    """The results of a module's changes."""

    name: str
    drawn: int = 0
    survivors: list[Change] = field(default_factory=list)

    @property
    def killed(self) -> int:
        return self.drawn - len(self.survivors)

    def row(self) -> str:
        percent = 100 * self.killed / max(self.drawn, 1)
        survived = len(self.survivors)
        return f"| {self.name} | {self.drawn} | {self.killed} | {survived} | {percent:.0f} % |"


def try_module(
    guarded: Guarded, laboratory: Laboratory, nursery: Nursery, *, size: int, seed: str
) -> Iterator[tuple[Change, bool]]:
    """Try a sample of a module's changes; yield each change, and whether a test detected it.

    Raises:
        UnguardedError: the module's tests do not pass on the unchanged code.
    """
    started = time.monotonic()
    if nursery.run(guarded.tests, limit_s=10 * LIMIT_S) != SURVIVED:
        raise UnguardedError(f"{guarded.name}: {nursery.said()}")
    limit_s = max(LIMIT_S, LIMIT_TIMES * (time.monotonic() - started))
    for change in draw_changes(laboratory.tree, guarded.files, size, f"{seed}:{guarded.name}"):
        with laboratory.changed(change.file, change.text):
            status = nursery.run(guarded.tests, limit_s=limit_s, patience_s=MUTANT_PATIENCE_S)
        yield change, status not in (SURVIVED, NOTHING_RAN)


@contextmanager
def started_servers() -> Iterator[Path]:
    """Start the servers of a test run, with a migrated database to copy; yield their folder."""
    # Imported late, because the plugin makes a folder, and migrations need Django's set-up.
    import django

    from tests import plugin

    services = plugin.SERVICES
    try:
        services.start()
        os.environ["DJANGO_SETTINGS_MODULE"] = "portal.site.settings"
        django.setup()
        plugin.make_template(services)
        yield services.folder
    finally:
        services.stop()


def mutate(names: Sequence[str], *, size: int, seed: str) -> list[Score]:
    """Try the named modules; report each survivor immediately."""
    wanted = [guarded for guarded in GUARDED if not names or guarded.name in names]
    scores = []
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="evenshare-mutate-"))
        laboratory = Laboratory(Path(folder))
        servers = None
        if any(guarded.database for guarded in wanted):
            servers = stack.enter_context(started_servers())
        for guarded in wanted:
            score = Score(guarded.name)
            scores.append(score)
            nursery = Nursery(laboratory, servers if guarded.database else None)
            stack.callback(nursery.close)
            started = time.monotonic()
            tried = try_module(guarded, laboratory, nursery, size=size, seed=seed)
            try:
                for change, is_killed in tried:
                    score.drawn += 1
                    if not is_killed:
                        score.survivors.append(change)
                        print(f"\n{guarded.name}: {change.file}:{change.line}\n{change.diff}")
            except UnguardedError as error:
                print(error)
            print(f"\n{score.row()} {time.monotonic() - started:.0f} s", flush=True)
    return scores


def main() -> None:
    """Read the arguments, try the modules, and print the table of scores."""
    known = [guarded.name for guarded in GUARDED]
    parser = argparse.ArgumentParser(prog="make mutate", description="Change the code, run tests.")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"all, or: {', '.join(known)}")
    parser.add_argument("--size", type=int, default=SAMPLE, help="changes per module; 0 for all")
    parser.add_argument("--seed", default="1", help="which changes are drawn")
    given = parser.parse_args()
    if unknown := set(given.modules) - set(known):
        parser.error(f"no module {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    scores = mutate(given.modules, size=given.size, seed=given.seed)
    print("\n| module | tried | killed | survived | score |\n|---|--:|--:|--:|--:|")
    print("\n".join(score.row() for score in scores))


if __name__ == "__main__":
    main()
