"""`evenshare-core simulate | decide | shares | verify`."""

import argparse
import sys
from collections.abc import Sequence

from evenshare_core.cli.command import CliError, say
from evenshare_core.cli.decide import DECIDE
from evenshare_core.cli.shares import SHARES
from evenshare_core.cli.simulate import SIMULATE
from evenshare_core.cli.verify import VERIFY

COMMANDS = {command.name: command for command in (SIMULATE, DECIDE, SHARES, VERIFY)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command named by the arguments; return its exit status, 0 on success."""
    chosen = vars(_parser().parse_args(arguments))
    command = COMMANDS[chosen.pop("command")]
    try:
        command.run(chosen, sys.stdout, sys.stderr)
    except CliError as error:
        say(sys.stderr, f"evenshare-core {command.name}: {error}")
        return error.code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="evenshare-core", description="Fair sharing of GPU clusters, without a portal."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS.values():
        command.add_arguments(
            commands.add_parser(command.name, help=command.help, description=command.help)
        )
    return parser
