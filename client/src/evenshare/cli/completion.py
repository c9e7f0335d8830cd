"""`evenshare completion`: scripts for shells, and the candidates for which the scripts ask.

A script holds no list of commands: it asks this program, so it never differs from the parser.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from evenshare.errors import EvenshareError

from .api import Transport
from .terminal import Terminal, inert

# A shell waits no longer for the portal, whatever the network does.
PATIENCE_S = 1.0
JOBS = 50
BASH = """\
_evenshare() {
  local IFS=$'\\n'
  COMPREPLY=($(evenshare completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _evenshare evenshare
"""
ZSH = """\
_evenshare() {
  local -a candidates
  candidates=("${(@f)$(evenshare completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -n "${candidates[1]}" ]]; then compadd -a candidates; else _files; fi
}
compdef _evenshare evenshare
"""
FISH = """\
function __evenshare
  set -l typed (commandline -opc)
  set -l last (commandline -ct)
  set -l candidates (evenshare completion words -- $typed[2..-1] "$last" 2>/dev/null)
  if test (count $candidates) -gt 0
    printf '%s\\n' $candidates
  else
    __fish_complete_path "$last"
  end
end
complete -c evenshare -f -a '(__evenshare)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
ASKED = "words"


def completion(options: argparse.Namespace, client: Transport, screen: Terminal) -> int:
    """Print a shell's script, or the candidates for the last of the given words."""
    if options.shell in SCRIPTS:
        screen.write(SCRIPTS[options.shell])
        return 0
    client.timeout_s = PATIENCE_S
    for candidate in candidates(options.top, options.command, client):
        screen.line(inert(candidate))
    return 0


def candidates(top: argparse.ArgumentParser, typed: Sequence[str], client: Transport) -> list[str]:
    """Return the possible completions of the last word, which may be empty."""
    *before, last = typed or [""]
    if "--" in before:
        return []
    place = _TypedCommand(top)
    for word in before:
        place.pass_over(word)
    if place.awaited is not None:
        possible = _values(place.awaited, client)
    elif last.startswith("-") or not place.positionals:
        possible = [name for action in _arguments(place.parser) for name in action.option_strings]
    else:
        possible = _values(place.positionals[0], client)
    return sorted({word for word in possible if word.startswith(last)})


class _TypedCommand:
    """The typed part of a command line, and the arguments that may follow."""

    def __init__(self, top: argparse.ArgumentParser) -> None:
        self.awaited: argparse.Action | None = None  # the option whose value comes next
        self._enter(top)

    def _enter(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser
        self.positionals = [one for one in _arguments(parser) if not one.option_strings]

    def pass_over(self, word: str) -> None:
        if self.awaited is not None:
            self.awaited = None
        elif word.startswith("-"):
            options = (one for one in _arguments(self.parser) if word in one.option_strings)
            self.awaited = next((one for one in options if one.nargs != 0), None)
        elif self.positionals:
            choices = self.positionals.pop(0).choices
            if isinstance(choices, Mapping) and word in choices:
                self._enter(choices[word])


def _arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return parser._actions  # noqa: SLF001 - argparse lists them nowhere else


def _values(action: argparse.Action, client: Transport) -> list[str]:
    """Return the values of an argument that are known; empty for a free one."""
    if action.choices is not None:
        return [str(choice) for choice in action.choices]
    ask = _ASKS.get(action.dest)
    return [] if ask is None else _within(PATIENCE_S, lambda: list(ask(client)))


def _within(seconds: float, ask: Callable[[], list[str]]) -> list[str]:
    """Return the portal's answer, or nothing if it takes too long or refuses."""
    answers: list[list[str]] = []

    def run() -> None:
        try:
            answers.append(ask())
        except (EvenshareError, KeyError, TypeError):
            return

    # As a daemon it does not keep the process from ending.
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    return answers[0] if answers else []


def _jobs(client: Transport) -> Iterator[str]:
    for job in client.get("/jobs", limit=JOBS)["results"]:
        yield str(job["id"])


def _pools(client: Transport) -> Iterator[str]:
    for pool in client.get("/pools")["results"]:
        yield str(pool["name"])


def _subscriptions(client: Transport) -> Iterator[str]:
    for subscription in client.get("/subscriptions")["results"]:
        yield str(subscription["id"])


def _quota_requests(client: Transport) -> Iterator[str]:
    for request in client.get("/quota-requests", state="open")["results"]:
        yield str(request["id"])


_ASKS: dict[str, Callable[[Transport], Iterator[str]]] = {
    "id": _jobs,
    "pool": _pools,
    "quota_request": _quota_requests,
    "subscription": _subscriptions,
}
