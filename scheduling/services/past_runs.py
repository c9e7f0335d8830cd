"""Runs of a pool's last days under several rules, from the same inputs.

The pool is converted to the files of `export_pool` and the options of `simulate`, so the results
are those of `simulate` on the exported pool. Nothing is written, and no transaction is open during
the runs.
"""

import argparse
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from evenshare_core.cli.files import InputError
from evenshare_core.cli.inputs import rules_of, scenario_of
from evenshare_core.cli.simulate import SIMULATE
from evenshare_core.simulation.scenario import Scenario
from evenshare_core.simulation.state import Rules
from scheduling.services.pool_export import FILE_OPTIONS, PoolExport, PoolExportError, export_pool


class PastRunError(Exception):
    """The last days cannot be run; the message has the field, the reason and the remedy."""


def read_past(
    pool: str, *, days: int, until: datetime | None = None
) -> tuple[PoolExport, dict[str, Any]]:
    """Return a pool's last `days` before `until` (pool time), and the options of `simulate`.

    Raises:
        PastRunError: the pool does not exist, or has no node or no job in these days.
    """
    try:
        export = export_pool(pool, last_days=days, until=until)
    except PoolExportError as error:
        raise PastRunError(f"--pool: {error}") from error
    parser = argparse.ArgumentParser(prog=SIMULATE.name)
    SIMULATE.add_arguments(parser)
    return export, vars(parser.parse_args(export.options))


def read_runs(
    export: PoolExport, options: Mapping[str, Any], changes: Sequence[Mapping[str, Any]]
) -> tuple[Scenario, list[Rules]]:
    """Return the scenario, and the rules of each run, which has `changes` of the options.

    All input is read before the first run.

    Raises:
        PastRunError: an option or a file is invalid.
    """
    read = dict(options)
    with TemporaryDirectory() as folder:
        for name, text in export.files.items():
            path = Path(folder) / name
            path.write_text(text, encoding="utf-8")
            read[FILE_OPTIONS[name].removeprefix("--").replace("-", "_")] = str(path)
        try:
            rules = [rules_of({**read, **change}) for change in changes]
            _, scenario = scenario_of({**read, **changes[0]})
        except InputError as error:
            raise PastRunError(str(error)) from error
    return scenario, [one for by_name in rules for one in by_name.values()]
