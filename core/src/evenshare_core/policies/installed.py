"""Policies of other packages, declared as entry points of the group `evenshare.policies`.

The name of an entry point is the name of its policy. If a package is faulty, only its own policies
are missing; the registry keeps the reasons (`evenshare_core.policies.registry.FAULTS`).
"""

from collections.abc import Collection, Iterator
from importlib.metadata import EntryPoint, distributions

from evenshare_core.policies.policy import Policy

GROUP = "evenshare.policies"
# Policies of the research package. If it is not installed, errors about these policies name the
# package.
RESEARCH = (
    "allox batch_sche chronus gavel genie hived hydra max_efficiency max_min optimus sjf srtf"
    " themis three_sigma tiresias_l yarn_cs"
)
BROUGHT_BY = dict.fromkeys(RESEARCH.split(), "evenshare-research")


def read_policies(built_in: Collection[str]) -> tuple[dict[str, Policy], dict[str, str]]:
    """Return the policies of other packages, and why policies are missing, both by name.

    If two packages declare the same name, neither policy is used, because their order is arbitrary.
    """
    policies: dict[str, Policy] = {}
    faults: dict[str, str] = {}
    declared: dict[str, list[EntryPoint]] = {}
    for entry in _entries():
        declared.setdefault(entry.name, []).append(entry)
    for name, entries in sorted(declared.items()):
        packages = " and ".join(sorted(map(_package, entries)))
        if name in built_in or len(entries) > 1:
            taken = (
                "the core has one of this name"
                if name in built_in
                else "policy names must be unique"
            )
            faults[name] = f"policy {name!r} of {packages} is skipped: {taken}"
            continue
        try:
            policies[name] = _load(entries[0])
        except (Exception, SystemExit) as error:  # noqa: BLE001 - an import may fail in any way
            why = f"{type(error).__name__}: {error}"
            faults[name] = f"policy {name!r} of {packages} does not load: {why}"
    return policies, faults


def _entries() -> Iterator[EntryPoint]:
    """Yield the declared entry points. A package with unreadable metadata has none.

    If a package is installed twice, only the first copy on the path is used.
    """
    seen: set[str] = set()
    for package in distributions():
        try:
            name = package.name
            entries = package.entry_points.select(group=GROUP)
        except Exception:  # noqa: BLE001, S112 - another package's metadata, broken in any way
            continue
        if name not in seen:
            seen.add(name)
            yield from entries


def _load(entry: EntryPoint) -> Policy:
    policy = entry.load()
    if not isinstance(policy, Policy):
        raise TypeError(f"{entry.value} is no Policy")
    if policy.name != entry.name:
        raise ValueError(f"{entry.value} is named {policy.name!r}")
    return policy


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value
