"""Policies by name: the core's policies, one line each, and those of other packages."""

from collections.abc import Mapping
from typing import Any

from evenshare_core.domain.reason_texts import NO_POLICY, NOT_INSTALLED
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.evenshare import policy as evenshare
from evenshare_core.policies.gandiva_fair import policy as gandiva_fair
from evenshare_core.policies.installed import BROUGHT_BY, read_policies
from evenshare_core.policies.ltgf import policy as ltgf
from evenshare_core.policies.market import policy as market
from evenshare_core.policies.options import OptionError, Options, parse_options
from evenshare_core.policies.orders import drf, fifo
from evenshare_core.policies.policy import Policy, Traits
from evenshare_core.policies.promised_start import PromisedStart
from evenshare_core.policies.quota_promise import PoolLengths, QuotaPromise
from evenshare_core.policies.sharing import oef
from evenshare_core.policies.unisched import policy as unisched

POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        ltgf.POLICY,
        evenshare.POLICY,
        oef.POLICY,
        fifo.POLICY,
        drf.POLICY,
        gandiva_fair.POLICY,
        market.POLICY,
        unisched.POLICY,
    )
}
# The policy of a new pool (ADR 0153).
DEFAULT = evenshare.POLICY.name
# Reasons why policies that other packages declare could not be loaded, by name.
FAULTS: dict[str, str] = {}


class UnknownPolicyError(LookupError):
    """An error: no policy has this name.

    The message names the missing package, or all known policies.
    """


def policy(name: str) -> Policy:
    """Return the policy of this name.

    Raises:
        UnknownPolicyError: no policy has this name.
    """
    if name not in POLICIES:
        raise UnknownPolicyError(missing_text(name))
    return POLICIES[name]


def missing_text(name: str) -> str:
    """Return why a policy is missing and which package provides it, or "" if it is installed."""
    if name in POLICIES:
        return ""
    if name in FAULTS:
        return FAULTS[name]
    if package := BROUGHT_BY.get(name):
        return NOT_INSTALLED.format(policy=name, package=package)
    return NO_POLICY.format(policy=name, known=", ".join(sorted(POLICIES)))


def traits(name: str) -> Traits:
    """Return the traits of a policy, or the default traits if it is not installed.

    The policy of a stored round may have been removed since.
    """
    return POLICIES[name].traits if name in POLICIES else Traits()


def options(name: str, raw: dict[str, Any]) -> Options:
    """Return the options of a policy, checked against their bounds.

    Raises:
        UnknownPolicyError: no policy has this name.
        OptionError: a field is unknown or out of bounds; the message names it.
    """
    return parse_options(policy(name).options_type, raw)


def options_of(snapshot: Snapshot) -> Options:
    """Return the options of a round (`Policy.options_of`).

    Raises: as `options`.
    """
    return policy(snapshot.policy).options_of(snapshot)


def usable_options(name: str, raw: dict[str, Any]) -> Options:
    """Return the options of a policy if it can decide with them on this machine.

    Raises: as `options`, and OptionError if an option needs a package that is not installed.
    """
    chosen = options(name, raw)
    if missing := policy(name).missing(chosen):
        raise OptionError(missing)
    return chosen


def quota_promise(name: str, raw: dict[str, Any], lengths: PoolLengths) -> QuotaPromise:
    """Return what a tenant may expect of its quota, with this policy and these durations of a pool.

    Raises: as `options`.
    """
    return policy(name).quota_promise(options(name, raw), lengths)


def model_text(name: str, raw: dict[str, Any]) -> str:
    """Return the program that a policy's rounds solve, or "" if it cannot be read or solves none.

    The policy of a stored round may have been removed since, or have other options.
    """
    try:
        return policy(name).model_text(options(name, raw))
    except (UnknownPolicyError, OptionError):
        return ""


def promised_starts(
    name: str, version: str, memory: Mapping[str, Any]
) -> tuple[PromisedStart, ...]:
    """Return the promised starts in a policy's memory; empty if another version left it."""
    known = POLICIES.get(name)
    if known is None or not known.decides_as(version):
        return ()
    return known.promised_starts(memory)


def policy_summary(name: str, raw: dict[str, Any]) -> str:
    """Return a policy as text: its name, and the options that differ from their defaults.

    Raises: as `options`.
    """
    chosen = options(name, raw)
    default = type(chosen)()
    changed = [
        f"{field} {getattr(chosen, field)}"
        for field in chosen.__struct_fields__
        if getattr(chosen, field) != getattr(default, field)
    ]
    return ", ".join([name, *changed])


# This import is at the end, because a module of another package may import the registry.
_policies, _faults = read_policies(POLICIES.keys())
POLICIES.update(_policies)
FAULTS.update(_faults)
