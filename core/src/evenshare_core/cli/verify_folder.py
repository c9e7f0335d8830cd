"""Implementation of `evenshare-core verify`; requires the extra `verify`."""

import importlib.metadata
from pathlib import Path

from evenshare_core.cli.bounded import in_child
from evenshare_core.cli.command import CliError, Options, Stream, say
from evenshare_core.verification.heads import Pin, read_pin
from evenshare_core.verification.history import EvidenceError, RoundHistory
from evenshare_core.verification.texts import Tally, gap_lines, head_lines, round_line, summary
from evenshare_core.verification.verdict import EXIT_CODES, ProofVerdict


def verify_folder(options: Options, out: Stream) -> None:
    """Print the result of each round and of the log's head.

    Raises:
        CliError: a round or the head is wrong or unproven; `code` is the exit status.
    """
    folder = Path(options["folder"])
    if not folder.is_dir():
        raise CliError(f"{folder} is no folder")
    pin = None if options["pin"] is None else _pin(Path(options["pin"]))
    tally = Tally(options["accept"])
    try:
        history = RoundHistory(lambda name: _read(folder / name))
        for finding in history.rounds(
            version_here, bounded=lambda work: in_child(work, options["limit"])
        ):
            say(out, round_line(finding))
            tally.add(finding)
        head = history.head(pin, tuple(options["vkey"]))
    except EvidenceError as error:
        raise CliError(f"{folder}: {error}") from error
    for text in head_lines(head):
        say(out, text)
    if not tally.rows:
        raise CliError(f"{folder}: it has no round record, so nothing was verified")
    tally.add_head(head)
    verdict, text = tally.verdict, summary(tally)
    for line in gap_lines(tally):
        say(out, line)
    if verdict is not ProofVerdict.PROVEN:
        raise CliError(text, EXIT_CODES[verdict])
    say(out, text)


def version_here(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CliError(f"{path} cannot be read: {error.strerror}") from error


def _pin(path: Path) -> Pin:
    try:
        return read_pin(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CliError(f"{path} is no pin: {error}") from error
