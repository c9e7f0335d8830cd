"""`evenshare-core verify`: recompute rounds of a pool from files saved by a client."""

import argparse
import importlib

from evenshare_core.cli.bounded import LIMIT_S
from evenshare_core.cli.command import CliError, CoreCommand, Options, Stream
from evenshare_core.verification.verdict import Gap

NOT_INSTALLED = "verifying needs cryptography: pip install 'evenshare-core[verify]'"


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", metavar="DIR", help="what `evenshare round verify --save-dir` kept"
    )
    parser.add_argument("--pin", metavar="FILE", help="a head that was checked before")
    parser.add_argument(
        "--vkey", metavar="KEY", action="append", default=[], help="a public key of the log"
    )
    parser.add_argument(
        "--accept", metavar="GAP", action="append", default=[], choices=[gap.value for gap in Gap],
        help="what need not be proven: " + ", ".join(gap.value for gap in Gap),
    )  # fmt: skip # rows of what belongs together
    parser.add_argument(
        "--limit",
        metavar="SECONDS",
        type=int,
        default=LIMIT_S,
        help=f"of CPU time for each round, by default {LIMIT_S}; 0: none",
    )


def _run(options: Options, out: Stream, err: Stream) -> None:  # noqa: ARG001 - as all commands
    try:
        module = importlib.import_module("evenshare_core.cli.verify_folder")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "cryptography":
            raise
        raise CliError(NOT_INSTALLED) from error
    module.verify_folder(options, out)


VERIFY = CoreCommand(
    "verify", "Recompute rounds from files of `evenshare round verify`.", _add_arguments, _run
)
