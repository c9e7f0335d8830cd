"""Reads a job's specification: all that is wrong with it at once, field by field. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from scheduling.requests.process import read_command, read_environment
from scheduling.selectors.offers import PoolOffer
from tenants.input import readers
from tenants.input.errors import FieldErrors, invalid

# Every name that a specification may have. `tenant` is the caller's to resolve.
KNOWN = (
    *("pool", "gpus", "command", "name", "tenant", "profile", "gpu_types", "max_price"),
    *("environment", "weight", "duration_s"),
)
VIRTUAL = "virtual"
DURATION_S, DURATION_MAX_S = 600, 30 * 24 * 3600
WEIGHT_MAX = 1000


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A specification that may be submitted. `name` is empty where one is to be made up.

    `profile` names its job type (empty: none); then `gpu_types` are those that it can run on.
    `max_price`: credits per borrowed GPU-hour (None: any). `duration_s`: of the virtual executor
    alone, in seconds of pool time, with a profile on its slowest GPU type.
    """

    pool: PoolOffer
    gpus: int
    command: tuple[str, ...] = ()
    name: str = ""
    gpu_types: tuple[str, ...] = ()
    max_price: Decimal | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    weight: int = 1
    duration_s: int | None = None
    profile: str = ""


def read_spec(raw: object, offer: PoolOffer | None) -> JobSpec:
    """Return the specification that `raw` (a mapping, as parsed from JSON) writes down.

    `offer` is the pool that it names, None where its tenant has no such pool. Fields that are
    null count as absent.

    Raises:
        InvalidInputError: with every finding, in the order of `KNOWN`.
    """
    if not isinstance(raw, Mapping):
        raise invalid("", "must be an object", "Send fields by name.")
    errors = FieldErrors()
    given = {str(name): value for name, value in raw.items() if value is not None}
    virtual = offer is not None and offer.executor == VIRTUAL
    _pool(given, offer, errors)
    gpus = readers.whole(given, "gpus", errors, least=1, required=True)
    command = read_command(given, errors, required=offer is not None and not virtual)
    name = readers.name(given, errors)
    gpu_types = _gpu_types(given, offer, errors)
    profile, gpu_types = _profile(given, gpu_types, offer, errors)
    max_price = readers.credits(given, "max_price", errors)
    environment = read_environment(given, errors)
    weight = readers.whole(given, "weight", errors, least=1, most=WEIGHT_MAX)
    duration_s = _duration(given, offer, errors, virtual=virtual)
    for extra in sorted(set(given) - set(KNOWN)):
        errors.add(extra[:80], "is not a field of a job", f"Fields: {', '.join(KNOWN)}.", "unknown")
    if offer is not None and gpus is not None and set(gpu_types) <= set(offer.gpus):
        _fits(gpus, gpu_types, offer, errors)
    errors.raise_any(order=KNOWN)
    assert offer is not None and gpus is not None  # noqa: S101, PT018 - else there were findings
    return JobSpec(
        offer, gpus, command, name, gpu_types, max_price, environment, weight or 1, duration_s,
        profile,
    )  # fmt: skip


def pool_named(raw: object) -> str:
    """Return the pool that a raw specification names; empty where it is no usable name."""
    value = raw.get("pool") if isinstance(raw, Mapping) else None
    return value if isinstance(value, str) and readers.SLUG.fullmatch(value) else ""


def _pool(given: Mapping[str, object], offer: PoolOffer | None, errors: FieldErrors) -> None:
    if offer is not None:
        return
    if "pool" not in given:
        errors.add("pool", "is required", "Name a pool in which the tenant has quota.", "required")
    elif not isinstance(given["pool"], str):
        errors.add("pool", "must be a text", "Write the name of a pool.")
    else:
        # Another tenant's pool reads exactly like none: its name must not leak.
        hint = "GET /api/v1/pools lists the pools of your tenants."
        errors.add("pool", "is not a pool of this tenant", hint, "unknown")


def _gpu_types(
    given: Mapping[str, object], offer: PoolOffer | None, errors: FieldErrors
) -> tuple[str, ...]:
    names = readers.texts(given, "gpu_types", errors, most=16)
    if offer is None:
        return names
    for index, name in enumerate(names):
        if name not in offer.gpus:
            there = ", ".join(sorted(offer.gpus)) or "none"
            hint = f"The pool has: {there}."
            errors.add(f"gpu_types[{index}]", "is not a GPU type of the pool", hint, "unknown")
    if len(set(names)) < len(names):
        errors.add("gpu_types", "names a type twice", "Name each type once.")
    return names


def _profile(
    given: Mapping[str, object],
    asked: tuple[str, ...],
    offer: PoolOffer | None,
    errors: FieldErrors,
) -> tuple[str, tuple[str, ...]]:
    """The job type, and the accepted GPU types: those of `asked` (empty: any) that can run it."""
    name = given.get("profile", "")
    if name in ("", None) or offer is None:
        return "", asked
    if not isinstance(name, str) or name not in offer.profiles:
        there = ", ".join(sorted(offer.profiles)) or "none; leave it out"
        reason = "is not a job type of this tenant in the pool"
        errors.add("profile", reason, f"There are: {there}.", "unknown")
        return "", asked
    able = offer.profiles[name]
    for index, gpu_type in enumerate(asked):
        if gpu_type in offer.gpus and gpu_type not in able:
            hint = f"{name} runs on: {', '.join(sorted(able))}."
            errors.add(f"gpu_types[{index}]", "cannot run this job type", hint)
    return name, tuple(kind for kind in sorted(able) if not asked or kind in asked)


def _duration(
    given: Mapping[str, object], offer: PoolOffer | None, errors: FieldErrors, *, virtual: bool
) -> int | None:
    seconds = readers.whole(given, "duration_s", errors, least=1, most=DURATION_MAX_S)
    if virtual:
        return seconds or DURATION_S
    if offer is not None and "duration_s" in given:
        hint = "Jobs of this pool run as long as their program does: leave it out."
        errors.add("duration_s", "is for pools of virtual jobs alone", hint)
    return None


def _fits(gpus: int, gpu_types: tuple[str, ...], offer: PoolOffer, errors: FieldErrors) -> None:
    accepted = [offer.gpus.get(name, 0) for name in gpu_types or offer.gpus]
    largest = max(accepted, default=0)
    if gpus > largest:
        what = "accepted type" if gpu_types else "type"
        reason = f"is more than the pool has of any {what}"
        errors.add("gpus", reason, f"Ask for {largest} at most.", "too_large")
