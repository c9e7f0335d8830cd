"""Policies by name. A new policy is one line here."""

from __future__ import annotations

from typing import Any

from evenshare_core.policies.baselines import fifo, sjf, srtf, yarn_cs
from evenshare_core.policies.ltgf import policy as ltgf
from evenshare_core.policies.policy import Options, Policy, parse_options
from evenshare_core.policies.sharing import gavel, max_efficiency, max_min, oef

POLICIES: dict[str, Policy] = {
    ltgf.POLICY.name: ltgf.POLICY,
    oef.POLICY.name: oef.POLICY,
    fifo.POLICY.name: fifo.POLICY,
    sjf.POLICY.name: sjf.POLICY,
    srtf.POLICY.name: srtf.POLICY,
    yarn_cs.POLICY.name: yarn_cs.POLICY,
    gavel.POLICY.name: gavel.POLICY,
    max_min.POLICY.name: max_min.POLICY,
    max_efficiency.POLICY.name: max_efficiency.POLICY,
}


class UnknownPolicyError(LookupError):
    """No policy has this name; the message lists those that exist."""


def policy(name: str) -> Policy:
    """Return the policy of this name.

    Raises:
        UnknownPolicyError: there is none.
    """
    try:
        return POLICIES[name]
    except KeyError:
        known = ", ".join(sorted(POLICIES))
        raise UnknownPolicyError(f"no policy is named {name!r}; known are {known}") from None


def options(name: str, raw: dict[str, Any]) -> Options:
    """Return the options of a policy, checked against their bounds.

    Raises:
        UnknownPolicyError: there is no such policy.
        OptionError: a field is unknown or out of bounds; it is named.
    """
    return parse_options(policy(name).options_type, raw)


def options_told(name: str, raw: dict[str, Any]) -> str:
    """Return a policy in words: its name, and the options that differ from their defaults.

    Raises: as `options`.
    """
    chosen = options(name, raw)
    plain = type(chosen)()
    words = [
        f"{field} {getattr(chosen, field)}"
        for field in chosen.__struct_fields__
        if getattr(chosen, field) != getattr(plain, field)
    ]
    return ", ".join([name, *words])
