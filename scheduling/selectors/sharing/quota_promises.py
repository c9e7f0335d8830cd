"""The longest wait for GPUs within quota that a pool's policy, options and times promise."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

from django.utils.translation import gettext as _

from evenshare_core.policies.options import OptionError
from evenshare_core.policies.quota_promise import PoolLengths, QuotaPromise, QuotaPromiseKind
from evenshare_core.policies.registry import POLICIES, quota_promise
from evenshare_core.units import SECOND_US
from scheduling.selectors.pools.lines import PoolFacts
from tenants.answers import Answer, answer_of, formatted_as


def _seconds(length_us: int) -> int:
    return -(-length_us // SECOND_US)


class WaitPartRow(Answer, frozen=True, rename={"length_us": "length_s"}):
    """A part of the longest wait for GPUs within quota."""

    text: str
    length_us: Annotated[int, formatted_as(_seconds)]


class QuotaPromiseRow(Answer, frozen=True, rename={"within_us": "within_s"}):
    """The promise for a tenant's quota. Lengths are pool time; `within_s` is the sum of the parts.

    `conditions`: what the guarantee requires.
    """

    kind: QuotaPromiseKind
    within_us: Annotated[int | None, formatted_as(_seconds)]
    parts: tuple[WaitPartRow, ...]
    text: str
    conditions: tuple[str, ...]


def promise_row(promise: QuotaPromise | None) -> QuotaPromiseRow | None:
    """Convert a promise to its answer."""
    if promise is None:
        return None
    parts = tuple(answer_of(WaitPartRow, part) for part in promise.parts)
    return answer_of(QuotaPromiseRow, promise, parts=parts)


def pool_promise(facts: PoolFacts) -> QuotaPromise | None:
    """Return the pool's present promise for quotas.

    Return None if its policy is not installed or its options are invalid.
    """
    options = json.loads(facts.options)
    return promise_with(
        facts.policy,
        options,
        round_s=facts.round_s,
        grace_s=facts.grace_s,
        scale=facts.clock.scale,
        lease_s=facts.longest_lease_s,
    )


def promise_with(
    policy: str,
    options: Mapping[str, Any],
    *,
    round_s: int,
    grace_s: int,
    scale: int,
    lease_s: int,
) -> QuotaPromise | None:
    """Return the promise of a pool with these settings as text, or None if they are invalid.

    `round_s` is wall time, `grace_s` and the longest term `lease_s` are pool time; `scale`: pool
    seconds per wall second.
    """
    if policy not in POLICIES:
        return None
    lengths = PoolLengths(round_s * scale * SECOND_US, grace_s * SECOND_US, lease_s * SECOND_US)
    try:
        promise = quota_promise(policy, dict(options), lengths)
    except OptionError:
        return None
    return promise._replace(
        text=_(promise.text),
        parts=tuple(part._replace(text=_(part.text)) for part in promise.parts),
        conditions=tuple(map(_, promise.conditions)),
    )
