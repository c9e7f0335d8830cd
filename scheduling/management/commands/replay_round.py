"""`manage.py replay_round ID`: decide and certify a stored round again, and compare."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from scheduling.models import Round
from scheduling.selectors.pools.lines import all_pool_names
from scheduling.selectors.rounds.following import Follower
from scheduling.selectors.rounds.replay import (
    MissingPolicyError,
    Replay,
    find_rounds,
    replay_stored_round,
)
from scheduling.selectors.rounds.stored import DamagedRoundError, ReplayError, round_bytes

CERTIFIED = {True: "the same", False: "DIFFERENT", None: "not stored"}
FOLLOWS = {False: "DOES NOT FOLLOW", None: "unknown whether it follows"}


class Command(BaseCommand):
    """Recompute a round's decision from its stored snapshot."""

    help = "Recompute a stored round: compare its decision byte by byte, and its certificate."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("numbers", nargs="*", type=int, metavar="ROUND")
        parser.add_argument(
            "--pool", help="name of the pool (default: philly; with --all: every pool)"
        )
        parser.add_argument("--all", action="store_true", help="all rounds whose data is kept")
        parser.add_argument(
            "--export", metavar="FILE", help="write the snapshot of one round, for `decide`"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Print a line per round; fail at the end if a round differs or is damaged."""
        try:
            rounds = self._rounds(options["pool"], options["numbers"], every=options["all"])
        except ReplayError as error:
            raise CommandError(str(error)) from error
        if options["export"]:
            self._export(rounds, Path(options["export"]))
            return
        failed = damaged = missing = outdated = broken = 0
        follower = Follower()
        for round_ in rounds:
            try:
                replay = replay_stored_round(round_, follower)
            except MissingPolicyError as error:
                missing += 1
                name = f"{round_.pool.name}, round {round_.number}"
                self.stdout.write(f"{name}: NOT DECIDED AGAIN: {error}")
                continue
            except ReplayError as error:
                damaged += 1
                label = "DAMAGED" if isinstance(error, DamagedRoundError) else "NOT READABLE"
                self.stdout.write(f"{round_.pool.name}, round {round_.number}: {label}: {error}")
                continue
            is_outdated = not replay.same and replay.versions is not None
            outdated += is_outdated
            failed += not is_outdated and (not replay.same or replay.certified is False)
            broken += replay.following is not None and replay.following.follows is False
            self._tell(round_, replay, is_outdated=is_outdated)
        problems = [f"{failed} of {len(rounds)} rounds gave a different result"] if failed else []
        if damaged:
            problems.append(f"{damaged} of {len(rounds)} rounds are damaged or not readable")
        if missing:
            problems.append(
                f"{missing} of {len(rounds)} rounds are of policies that are not installed"
            )
        if broken:
            problems.append(
                f"{broken} of {len(rounds)} rounds do not follow from the previous round"
            )
        if problems:
            raise CommandError("; ".join(problems))
        same = f"{len(rounds) - outdated} of {len(rounds)} rounds gave the same bytes"
        rest = f"; {outdated} decided by another version of their policy" if outdated else ""
        self.stdout.write(same + rest)

    def _tell(self, round_: Round, replay: Replay, *, is_outdated: bool) -> None:
        """Print the result next to the stored values."""
        verdict = "same bytes" if replay.same else "DIFFERENT"
        if replay.versions is not None and is_outdated:
            verdict = "another version: {} decided, here is {}".format(*replay.versions)
        self.stdout.write(
            f"{round_.pool.name}, round {round_.number}: {verdict}"
            f"  snapshot {replay.snapshot_sha256}  decision {replay.decision_sha256}"
            f"  certificate {CERTIFIED[replay.certified]}"
        )
        if not replay.same:
            self.stdout.write(f"  stored: {round_.snapshot_sha256} {round_.decision_sha256}")
        following = replay.following
        if following is not None and not following.follows:
            self.stdout.write(f"  {FOLLOWS[following.follows]} from round {following.before}:")
            for why in following.why:
                self.stdout.write(f"    {why}")

    def _rounds(self, pool: str | None, numbers: list[int], *, every: bool) -> list[Round]:
        """Return the named rounds; with `--all` and no name, all stored rounds of all pools."""
        pools = [pool or "philly"]
        if every and pool is None:
            pools = all_pool_names()
        return [round_ for name in pools for round_ in find_rounds(name, numbers, every=every)]

    def _export(self, rounds: list[Round], path: Path) -> None:
        """Write the canonical bytes of a round's stored snapshot."""
        if len(rounds) != 1:
            raise CommandError("--export writes one round: name it by its number")
        try:
            path.write_bytes(round_bytes(rounds[0])[0])
        except (ReplayError, OSError) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"snapshot of round {rounds[0].number} in {path}")
