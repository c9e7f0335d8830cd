"""`manage.py tune_lease --pool POOL`: find the best lease length for the last days."""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from evenshare_core.cli.files import InputError
from evenshare_core.cli.inputs import add_overheads
from evenshare_core.cli.pool_inputs import whole_number
from evenshare_core.domain.plurals import plural
from evenshare_core.simulation.lease_tuning import LENGTHS_S, WITHIN_PERCENT, LengthFigures
from scheduling.requests.pools import LENGTHS
from scheduling.services.lease_tuning import LeaseTuning, LengthRun, tune_lease
from scheduling.services.past_runs import PastRunError

DAYS, DAYS_MOST = 7, 3650
FREE = (
    "Preemptions cost nothing in these runs, which favours short lengths: give --cold-s and"
    " --checkpoint-s as measured in this pool."
)
ROW = "{:>8}  {:>16}  {:>8}  {:>11}  {:>12}  {:>8}  {:>10}"


class Command(BaseCommand):
    """Simulate several lease lengths, and print the results side by side; change nothing."""

    help = "Simulate a pool's last days with several lease lengths and recommend a length."

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("--pool", required=True, metavar="P", help="the pool's name")
        add(
            "--days",
            default=str(DAYS),
            metavar="N",
            help="days of pool time, until now (%(default)s)",
        )
        add(
            "--lengths",
            metavar="S,S,...",
            help=f"lease lengths in seconds of pool time ({','.join(map(str, LENGTHS_S))})",
        )
        add("--policy", metavar="P", help="a policy instead of the pool's, with default options")
        add_overheads(parser)
        add("--json", action="store_true", help="print one JSON object and nothing else")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the figures and the recommendation, and print remarks to standard error."""
        try:
            tuning = tune_lease(
                options["pool"],
                days=whole_number(options["days"], "--days", DAYS_MOST),
                lengths=_lengths(options["lengths"]),
                policy=options["policy"],
                cold_s=options["cold_s"],
                checkpoint_s=options["checkpoint_s"],
                remark=self.stderr.write,
                progress=_announce_lengths(
                    self.stderr.write, is_free=not options["cold_s"] and not options["checkpoint_s"]
                ),
            )
        except (InputError, PastRunError) as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            self.stdout.write(json.dumps(_fields(tuning)))
            return
        self.stdout.write(_table(tuning))


def _lengths(text: str | None) -> list[int] | None:
    if text is None:
        return None
    most = LENGTHS["lease_s"][1]
    lengths = [whole_number(part.strip(), "--lengths", most) for part in text.split(",")]
    for length in lengths:
        if lengths.count(length) > 1:
            raise InputError(f"--lengths: {length} is repeated; name it once")
    return lengths


def _announce_lengths(
    write: Callable[[str], object], *, is_free: bool
) -> Callable[[LengthRun], None]:
    """Return a function that announces each length when its run starts.

    `is_free`: preemptions cost nothing, which it says first.
    """
    announced: set[int] = set()

    def announce(run: LengthRun) -> None:
        if is_free and not announced:
            write(FREE)
        if run.position not in announced:
            announced.add(run.position)
            write(f"Length {run.position + 1} of {run.runs}: {run.lease_s:,} s.")

    return announce


def _fields(tuning: LeaseTuning) -> dict[str, Any]:
    """Return the object of `--json`: shares as fractions of 1, null if there is no data."""
    fields = asdict(tuning)
    lengths, recommended = fields.pop("rows"), fields.pop("recommended")
    return {**fields, "lengths": lengths, "recommended_s": recommended["lease_s"]}


def _table(tuning: LeaseTuning) -> str:
    rows = [
        ROW.format(
            f"{row.lease_s:,} s", _seconds(row.avg_jct_s), _percent(row.overhead_share),
            f"{row.preemptions:,}", _percent(row.sharing_loss), f"{row.finished:,}",
            f"{row.never_ending:,}",
        )
        for row in tuning.rows
    ]  # fmt: skip # a table
    head = ROW.format(
        "lease", "mean completion", "overhead", "preemptions", "sharing loss", "finished",
        "never end",
    )  # fmt: skip # rows of what belongs together
    jobs = plural(tuning.jobs, "job")
    title = f"Pool {tuning.pool}, policy {tuning.policy}, {jobs} since {tuning.start}"
    return "\n".join([title, head, *rows, _finding(tuning)])


def _finding(tuning: LeaseTuning) -> str:
    best: LengthFigures = tuning.recommended
    now = (
        "the current length" if best.lease_s == tuning.present_s else f"now {tuning.present_s:,} s"
    )
    return (
        f"Recommended: {best.lease_s:,} s ({now}), the length with the least sharing loss among"
        f" those with a mean completion time within {WITHIN_PERCENT} % of the best. Nothing was"
        f" changed."
    )


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f} s"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f} %"
