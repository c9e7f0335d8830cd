"""Policies of other packages, declared as entry points of the group `evenshare.policies`.

The name of an entry point is the name of its policy. If a package is faulty, only its own policies
are missing; the registry keeps the reasons (`evenshare_core.policies.registry.FAULTS`).
"""

from collections.abc import Collection
from importlib.metadata import EntryPoint

from evenshare_core.entry_points import EntryGroup
from evenshare_core.policies.policy import Policy

GROUP = EntryGroup("evenshare.policies", "policy", "the core")
# Policies of the research package. If it is not installed, errors about these policies name the
# package.
RESEARCH = (
    "allox batch_sche chronus gavel genie hived hydra max_efficiency max_min optimus sjf srtf"
    " themis three_sigma tiresias_l yarn_cs"
)
BROUGHT_BY = dict.fromkeys(RESEARCH.split(), "evenshare-research")


def read_policies(built_in: Collection[str]) -> tuple[dict[str, Policy], dict[str, str]]:
    """Return the policies of other packages, and why policies are missing, both by name."""
    policies: dict[str, Policy] = {}
    entries, faults = GROUP.read(built_in)
    for name, entry in entries.items():
        try:
            policies[name] = _load(entry)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - an import may fail in any way
            faults[name] = GROUP.not_loaded(entry, error)
    return policies, faults


def _load(entry: EntryPoint) -> Policy:
    policy = entry.load()
    if not isinstance(policy, Policy):
        raise TypeError(f"{entry.value} is no Policy")
    if policy.name != entry.name:
        raise ValueError(f"{entry.value} is named {policy.name!r}")
    return policy
