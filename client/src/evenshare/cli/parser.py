"""The grammar of the command line: a noun, a verb and options, and `--` before a job's program."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from evenshare import __version__

from .arguments import CommandRow
from .table import COMMANDS, NOUNS

EXIT_CODES = """exit codes:
  0  done; with --wait: the job succeeded
  2  the command line is wrong; nothing was sent
  3  refused, not reachable, not feasible; with --wait: the job did not succeed;
     verify and pin: data differs from the signed log or the statement
  4  conflict: the idempotency key belongs to another job, or the state has changed
  5  verify: no errors, but not all parts are proven; the last lines show what to do
  130  interrupted; the job goes on

environment:
  EVENSHARE_URL, EVENSHARE_TOKEN override the stored login
"""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="evenshare",
        description="Submit jobs to a shared GPU cluster and see why they are queued.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"evenshare {__version__}")
    nouns = top.add_subparsers(metavar="COMMAND", required=True, dest="noun")
    for noun in dict.fromkeys(row.noun for row in COMMANDS):
        rows = {row.verb: row for row in COMMANDS if row.noun == noun}
        whole = rows.pop("", None)
        if whole is None:
            group = nouns.add_parser(noun, help=_about(noun, rows), allow_abbrev=False)
        else:
            group = _leaf(nouns, noun, whole)
        if rows:
            verbs = group.add_subparsers(metavar="VERB", required=whole is None, dest="verb")
            for verb, row in rows.items():
                _leaf(verbs, verb, row)
    return top


def _about(noun: str, verbs: Iterable[str]) -> str:
    listed = ", ".join(verbs)
    return f"{NOUNS[noun]}: {listed}" if noun in NOUNS else listed


def _leaf(
    nouns: argparse._SubParsersAction[argparse.ArgumentParser], name: str, row: CommandRow
) -> argparse.ArgumentParser:
    about = row.about
    leaf = nouns.add_parser(name, help=about, description=about, allow_abbrev=False)
    leaf.add_argument("-o", "--output", choices=("table", "json"), default="table")
    leaf.add_argument(
        "--explain", action="store_true", help="print the HTTP call instead of making it"
    )
    for option in row.options:
        leaf.add_argument(*option.names, **option.settings)
    leaf.set_defaults(run=row.run, usage=leaf.format_usage, takes_command=row.takes_command)
    return leaf
