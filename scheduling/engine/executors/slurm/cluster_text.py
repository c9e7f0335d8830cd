"""Parses the output of Slurm's tools on nodes, generic resources and settings.

Formats differ a little between versions: `gres:gpu:a100:4` (22.05), `gres/gpu:a100:4` (23.02),
`gres/gpu:a100=4` (24.05).
"""

import re
from dataclasses import dataclass
from itertools import product

# The maximum length of a list of nodes; no cluster has more nodes.
MOST_NODES = 100_000
# Suffixes of sinfo's states: powered down, not responding, reserved, ...
_FLAGS = "*~#!%$@^-+"
_DOWN = frozenset(
    (
        "down", "drained", "draining", "drain", "drng", "fail", "failing", "failg", "error",
        "future", "inval", "maint", "unknown", "unk", "perfctrs", "reboot", "reboot_issued",
        "powered_down", "powering_down", "pow_dn", "powerdown",
    )
)  # fmt: skip # a table
_GPU = re.compile(r"(?:^|[,:/])gpu(?::([A-Za-z_][\w.-]*))?(?:[:=](\d+))?(?=[,(]|$)")
_RANGES = re.compile(r"\[([0-9,-]+)\]")


@dataclass(frozen=True)
class SlurmNodeText:
    """A node as sinfo reports it.

    `gpus`: the number of GPUs by Slurm's name of their type, which may be empty.
    """

    name: str
    state: str
    gpus: tuple[tuple[str, int], ...]
    cpus: int
    memory_mib: int

    @property
    def is_up(self) -> bool:
        """Whether it accepts jobs."""
        return self.state.lower().rstrip(_FLAGS) not in _DOWN and not self.is_silent

    @property
    def is_silent(self) -> bool:
        """Whether its slurmd does not answer."""
        return self.state.endswith("*")


NODE_FORMAT = "%N|%T|%G|%c|%m"


def parse_nodes(table: str) -> list[SlurmNodeText]:
    """Return the rows of `sinfo --noheader --Node --format` NODE_FORMAT, each node once."""
    nodes: dict[str, SlurmNodeText] = {}
    for line in table.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != 5:
            continue
        name, state, gres, cpus, memory = fields
        gpus = tuple(parse_gpus(gres))
        nodes[name] = SlurmNodeText(name, state, gpus, _number(cpus), _number(memory))
    return list(nodes.values())


def parse_gpus(gres: str) -> list[tuple[str, int]]:
    """Return (type, GPUs) pairs from a text of generic resources.

    An entry without a number means 1 GPU.
    """
    return [(name, int(count or 1)) for name, count in _GPU.findall(gres)]


def expand_nodes(hostlist: str) -> tuple[str, ...]:
    """Return the names of a list like `node-[1-3,07],login`; empty if it is invalid or too long."""
    names: list[str] = []
    for part in re.split(r",(?![^\[]*\])", hostlist.strip()):
        pieces = _RANGES.split(part)
        choices = [_numbers(one) if index % 2 else [one] for index, one in enumerate(pieces)]
        for chosen in product(*choices):
            names.append("".join(chosen))
            if len(names) > MOST_NODES:
                return ()
    return tuple(name for name in names if name)


def _numbers(ranges: str) -> list[str]:
    numbers: list[str] = []
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        if not first or int(last or first) - int(first) > MOST_NODES:
            continue
        span = range(int(first), int(last or first) + 1)
        numbers += [f"{number:0{len(first)}}" for number in span]
    return numbers


def parse_config(text: str) -> dict[str, str]:
    """Return the settings of `scontrol show config` by name; `(null)` becomes empty."""
    settings = {}
    for line in text.splitlines():
        name, is_setting, value = line.partition(" = ")
        if is_setting:
            settings[name.strip()] = _value(value)
    return settings


def parse_fields(text: str) -> dict[str, str]:
    """Return the NAME=VALUE words of one entity, as `scontrol show partition` prints them."""
    pairs = (word.partition("=") for word in text.split())
    return {name: _value(value) for name, is_field, value in pairs if is_field}


def parse_seconds(text: str) -> int | None:
    """Return the seconds of a setting like `300 sec`, or None if it is not a number."""
    number = text.split(" ", 1)[0]
    return int(number) if number.isdecimal() else None


def _value(text: str) -> str:
    value = text.strip()
    return "" if value in ("(null)", "N/A", "n/a") else value


def _number(text: str) -> int:
    digits = re.match(r"\d+", text)
    return int(digits.group()) if digits else 0
