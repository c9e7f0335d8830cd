"""Check that a policy starts a round with the memory that it left in the previous round. Pure."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from evenshare_core.disclosure.renaming import Ids, collected, plan_of, renamed
from evenshare_core.domain.ids import IdKind
from evenshare_core.policies import registry
from evenshare_core.verification.following_ids import FollowedRound, Pairing, RoundText
from evenshare_core.verification.following_texts import MEMORY_DIFFERS, MEMORY_OF_OTHER

_NOTHING = object()
# The maximum number of entries that a message names.
NAMED = 5


def memory_breaks(
    before: FollowedRound, after: FollowedRound, ids: Pairing, text: RoundText
) -> Iterator[str]:
    """Yield the differences from the memory that the previous round left.

    Another policy or version must start with empty memory.

    Raises:
        UnknownPolicyError: the rounds have names, and the policy is not known here.
    """
    first, second = before.snapshot, after.snapshot
    taken = second.memory
    if (first.policy, first.policy_version) != (second.policy, second.policy_version):
        if taken:
            yield MEMORY_OF_OTHER.format(
                count=len(taken),
                before=text.before,
                policy=f"{first.policy} {first.policy_version}",
            )
        return
    left = before.decision.memory
    if not ids.exact:
        left = _as_after(left, taken, first.policy, ids)
    if left == taken:
        return
    entries = left.keys() | taken.keys()
    wrong = sorted(
        name for name in entries if left.get(name, _NOTHING) != taken.get(name, _NOTHING)
    )
    yield MEMORY_DIFFERS.format(
        before=text.before,
        count=len(wrong),
        entries=len(entries),
        names=", ".join(wrong[:NAMED]),
    )


class _After(dict[Any, Any]):
    """The next round's ids by the previous round's; an id without a match becomes negative."""

    def __missing__(self, key: Any) -> Any:
        return -key if key else key


def _as_after(
    left: dict[str, Any], taken: dict[str, Any], policy: str, ids: Pairing
) -> dict[str, Any]:
    """Return the memory that the previous round left, with the ids of the next round."""
    plan = plan_of(registry.policy(policy).memory_ids)
    known = {
        IdKind.TENANT: ids.tenants,
        IdKind.JOB: ids.jobs,
        IdKind.LEASE: ids.leases,
        IdKind.PROFILE: ids.profiles,
    }
    after: dict[IdKind, Mapping[Any, Any]] = {kind: _After(rows) for kind, rows in known.items()}
    if not ids.by_name:
        # Both memories have the same ids in the same order, so ids missing in the sums are paired
        # by rank.
        were, are = collected(deepcopy(left), plan), collected(deepcopy(taken), plan)
        after = {
            kind: _After(dict(zip(were[kind], are[kind], strict=False)) | known[kind])
            for kind in known
        }
    renamed_ids: Ids = after
    return dict(renamed(deepcopy(left), plan, renamed_ids))
