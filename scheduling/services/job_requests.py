"""Reads a job's request for a pool, and reports all its errors at once, by field. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import TypeVar

from django.conf import settings
from django.utils.translation import gettext as _

from scheduling.engine.executors.base import executor_traits
from scheduling.requests.job_deadline import check_deadline
from scheduling.requests.job_queue import check_not_before
from scheduling.requests.job_sessions import ONLY_SESSIONS, OPTIONS, SERVE, SESSION_HINT
from scheduling.requests.jobs import DURATION_S, JobRequest
from scheduling.requests.process import COMMAND_HINT
from scheduling.selectors.pools.offers import PoolOffer
from tenants.input import readers
from tenants.input.errors import FieldErrors
from tenants.input.requests import (
    given_fields,
    make_request,
    read_fields,
    refuse_unknown,
    request_fields,
)
from tenants.language import gettext_noop

NO_TYPE = gettext_noop("is not a GPU type of the pool")


R = TypeVar("R", bound=JobRequest)


def read_job_request(raw: object, offer: PoolOffer | None) -> JobRequest:
    """Return the request in `raw` (a mapping, as parsed from JSON), completed for the offer's pool.

    `offer` is None if the tenant has no pool of the given name. With a profile, `gpu_types` are the
    accepted ones that it can run on. In a pool of simulated jobs, `duration_s` always has a value,
    the time on the slowest GPU type. The caller resolves `tenant`, which is empty here.

    Raises:
        InvalidInputError: with every error, in the order of the request's fields.
    """
    return read_completed(JobRequest, raw, offer)


def read_completed(request: type[R], raw: object, offer: PoolOffer | None) -> R:
    """Like `read_job_request`, for a request that may have further fields."""
    errors = FieldErrors()
    given = given_fields(request, raw)
    values = read_fields(request, given, errors)
    if offer is None:
        _refuse_pool(given, errors)
    else:
        values |= _read_for(offer, given, values, errors)
    refuse_unknown(request, given, errors)
    errors.raise_any(tuple(request_fields(request)))
    return make_request(request, values)


def deadline_errors(request: JobRequest, at: datetime) -> FieldErrors:
    """Return the errors of a request's deadline and earliest start, at pool time `at`."""
    errors = FieldErrors()
    if request.deadline:
        steps = request.deadline_steps
        check_deadline(request.deadline, request.job_class, steps, at, errors)
    check_not_before(request.not_before, at, errors)
    return errors


def named_pool(raw: object) -> str:
    """Return the pool that a raw request names, or "" if the name is not usable."""
    value = raw.get("pool") if isinstance(raw, Mapping) else None
    return value if isinstance(value, str) and readers.SLUG.fullmatch(value) else ""


def _refuse_pool(given: Mapping[str, object], errors: FieldErrors) -> None:
    if "pool" not in given:
        errors.add(
            "pool", _("is required"), _("Name a pool in which the tenant has quota."), "required"
        )
    elif not isinstance(given["pool"], str):
        errors.add("pool", _("must be a string"), _("Use the name of a pool."))
    else:
        # Another tenant's pool yields the same error as an unknown one: its name must not leak.
        hint = _("GET /api/v1/pools lists the pools of your tenants.")
        errors.add("pool", _("is not a pool of this tenant"), hint, "unknown")


def _read_for(
    offer: PoolOffer,
    given: Mapping[str, object],
    values: Mapping[str, object],
    errors: FieldErrors,
) -> dict[str, object]:
    is_simulated = executor_traits(offer.executor).simulates
    session = values.get("session")
    _check_session(session, values, offer, errors)
    if "command" not in given and not is_simulated and not given.get("session"):
        errors.add("command", _("is required"), _(COMMAND_HINT), "required")
    if "duration_s" in given and not is_simulated:
        hint = _("Jobs of this pool run as long as their program: remove it.")
        errors.add("duration_s", _("is only for pools of simulated jobs"), hint)
    named = values.get("gpu_types", ())
    asked = named if isinstance(named, tuple) else ()
    _check_types(asked, offer, errors)
    profile, gpu_types = _profile(given, asked, offer, errors)
    gpus = values.get("gpus")
    if isinstance(gpus, int) and set(gpu_types) <= set(offer.gpus):
        _check_size(gpus, gpu_types, offer, errors)
    duration_s = (values["duration_s"] or DURATION_S) if is_simulated else None
    command = values.get("command", ())
    return {
        "pool": offer.name,
        "command": SERVE if session and not command else command,
        "profile": profile,
        "gpu_types": gpu_types,
        "duration_s": duration_s,
    }


def _check_session(
    session: object, values: Mapping[str, object], offer: PoolOffer, errors: FieldErrors
) -> None:
    if not session:
        for name in OPTIONS:
            if values.get(name):
                errors.add(name, _(ONLY_SESSIONS), _(SESSION_HINT))
        return
    if not executor_traits(offer.executor).keeps_files:
        errors.add("session", _("needs a pool that runs programs"), _("Choose another pool."))
    elif not settings.SESSIONS_DOMAIN:
        hint = _("An operator turns sessions on by SESSIONS_DOMAIN.")
        errors.add("session", _("cannot be opened: this portal has no domain for sessions"), hint)
    idle_s = values.get("session_idle_s")
    if isinstance(idle_s, int) and idle_s > settings.SESSION_IDLE_MAX_S:
        hint = _("At most {most} seconds.").format(most=settings.SESSION_IDLE_MAX_S)
        errors.add("session_idle_s", _("is longer than this portal allows"), hint, "out_of_range")


def _check_types(asked: tuple[str, ...], offer: PoolOffer, errors: FieldErrors) -> None:
    for index, name in enumerate(asked):
        if name not in offer.gpus:
            there = ", ".join(sorted(offer.gpus)) or "none"
            hint = _("The pool has: {there}.").format(there=there)
            errors.add(f"gpu_types[{index}]", _(NO_TYPE), hint, "unknown")
    if len(set(asked)) < len(asked):
        errors.add("gpu_types", _("names a type twice"), _("Name each type once."))


def _profile(
    given: Mapping[str, object], asked: tuple[str, ...], offer: PoolOffer, errors: FieldErrors
) -> tuple[str, tuple[str, ...]]:
    """Return the job type, and the GPU types of `asked` (empty: any) on which it can run."""
    name = given.get("profile", "")
    if name == "":
        return "", asked
    if not isinstance(name, str) or name not in offer.profiles:
        there = ", ".join(sorted(offer.profiles)) or "none; omit it"
        reason = _("is not a job type of this tenant in the pool")
        errors.add("profile", reason, _("Job types: {there}.").format(there=there), "unknown")
        return "", asked
    able = offer.profiles[name]
    for index, gpu_type in enumerate(asked):
        if gpu_type in offer.gpus and gpu_type not in able:
            hint = _("{job_type} runs on: {names}.").format(
                job_type=name, names=", ".join(sorted(able))
            )
            errors.add(f"gpu_types[{index}]", _("cannot run this job type"), hint)
    return name, tuple(one for one in sorted(able) if not asked or one in asked)


def _check_size(
    gpus: int, gpu_types: tuple[str, ...], offer: PoolOffer, errors: FieldErrors
) -> None:
    accepted = [offer.gpus.get(name, 0) for name in gpu_types or offer.gpus]
    largest = max(accepted, default=0)
    if gpus > largest:
        of_accepted = _("is more than the pool has of any accepted type")
        reason = of_accepted if gpu_types else _("is more than the pool has of any type")
        errors.add(
            "gpus", reason, _("Request at most {largest}.").format(largest=largest), "too_large"
        )
        return
    # If one accepted type has no limit, the job is not refused, because it can wait for that type.
    names = [name for name in gpu_types or offer.gpus if offer.gpus.get(name, 0) >= gpus]
    limits = [offer.at_most.get(name) for name in names]
    allowed = max((limit for limit in limits if limit is not None), default=0)
    if None not in limits and gpus > allowed:
        fewer = _(
            "Request at most {largest}, or ask an operator for more quota or a higher borrowing"
            " limit."
        ).format(largest=allowed)
        other = _(
            "Choose another GPU type, or ask an operator for more quota or a higher borrowing"
            " limit."
        )
        hint = fewer if allowed else other
        reason = _("is more than the tenant's quota and borrowing limit allow")
        errors.add("gpus", reason, hint, "quota_limit")
