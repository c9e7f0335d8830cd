"""Replay: finds stored rounds and decides them again."""

from collections.abc import Sequence
from dataclasses import dataclass

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.domain.values import canonical_bytes, sha256_hex
from evenshare_core.fairness.certificate import plain
from evenshare_core.policies.base import certify_round, decide_round
from evenshare_core.policies.registry import UnknownPolicyError
from evenshare_core.policies.registry import policy as policy_named
from scheduling.models import Pool, Round
from scheduling.selectors.rounds.following import Follower, Following
from scheduling.selectors.rounds.states import state_damages
from scheduling.selectors.rounds.stored import (
    DamagedRoundError,
    ReplayError,
    kept_rounds,
    round_values,
    row_damages,
    with_seals,
)


class MissingPolicyError(ReplayError):
    """No installed policy can decide the round again; the message says how to install it."""


@dataclass(frozen=True)
class Replay:
    """The result of deciding a round again: the hashes of the snapshot and of the new decision.

    `certified`: whether the certificate is the same too, or None if none of this version was
    stored. `versions`: those of the policy that decided the round and of the installed policy, or
    None if they are equal. Different versions may decide differently. `following`: whether the
    round starts from the state that the previous round left.
    """

    snapshot_sha256: str
    decision_sha256: str
    same: bool
    certified: bool | None = None
    versions: tuple[str, str] | None = None
    following: Following | None = None


def find_rounds(pool_name: str, numbers: Sequence[int], *, every: bool = False) -> list[Round]:
    """Return the named rounds of a pool, or with `every` all whose bytes are or should be kept.

    Raises:
        ReplayError: the pool or a round of it is unknown, or no round was named.
    """
    pool = Pool.objects.filter(name=pool_name).first()
    if pool is None:
        known = ", ".join(Pool.objects.values_list("name", flat=True)) or "none"
        raise ReplayError(f"pool {pool_name!r} is unknown; pools: {known}")
    rounds = with_seals(Round.objects.filter(pool=pool).select_related("pool").order_by("number"))
    if every:
        return list(kept_rounds(rounds, in_files=True))
    if not numbers:
        raise ReplayError("give at least one round, or --all")
    by_number = {round_.number: round_ for round_ in rounds.filter(number__in=numbers)}
    missing = [number for number in numbers if number not in by_number]
    if missing:
        raise ReplayError(f"pool {pool_name} has no round {missing[0]}")
    return [by_number[number] for number in numbers]


def replay_stored_round(round_: Round, follower: Follower | None = None) -> Replay:
    """Decide a stored snapshot again and compare the result with the stored decision.

    `follower`: pass the same one for many rounds in order, so that each is read once.

    Raises:
        ReplayError: the bytes are no longer kept, or the policy is not installed here.
        DamagedRoundError: the bytes, or the round's row, differ from what was written.
    """
    damages = (*row_damages(round_), *state_damages(round_))
    try:
        snapshot, decision = round_values(round_)
    except DamagedRoundError as error:
        raise DamagedRoundError(round_.number, (*damages, *error.damages)) from error
    if damages:
        raise DamagedRoundError(round_.number, damages)
    try:
        policy = policy_named(snapshot.policy)
    except UnknownPolicyError as error:
        raise MissingPolicyError(str(error)) from None
    same = policy.decides_again(snapshot)
    again = sha256_hex(canonical_bytes(decide_round(snapshot)))
    return Replay(
        round_.snapshot_sha256,
        again,
        again == round_.decision_sha256,
        certificate_same(round_, snapshot, decision),
        None if same else (snapshot.policy_version, policy.version),
        (follower or Follower()).look(round_, (snapshot, decision)),
    )


def certificate_same(round_: Round, snapshot: Snapshot, decision: Decision) -> bool | None:
    """Return whether the certificate of a round's stored bytes equals the stored certificate.

    Return None if it has no certificate, or one of another version.
    """
    stored = round_.certificate
    if not stored:
        return None
    again = plain(certify_round(snapshot, decision))
    return None if stored.get("version") != again["version"] else bool(again == stored)
