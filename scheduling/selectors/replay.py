"""Finds stored rounds and decides them again."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.domain.values import canonical_bytes, decode, sha256_hex
from evenshare_core.fairness.certificate import VERSION, plain
from evenshare_core.policies.base import certify_round, decide_round
from scheduling.models import Pool, Round, RoundBlob


class ReplayError(Exception):
    """The round cannot be replayed: it is unknown, or its bytes are no longer kept."""


@dataclass(frozen=True)
class Replay:
    """A round decided again: the hashes of what was stored and what came out.

    `certified`: whether its certificate comes out the same too; None where none was stored, or
    one of another version.
    """

    snapshot_sha256: str
    decision_sha256: str
    same: bool
    certified: bool | None = None


def find_rounds(pool_name: str, numbers: Sequence[int], *, every: bool = False) -> list[Round]:
    """Return the named rounds of a pool, or every one whose bytes are kept.

    Raises:
        ReplayError: no such pool, or a round of it is unknown; or none was named.
    """
    pool = Pool.objects.filter(name=pool_name).first()
    if pool is None:
        known = ", ".join(Pool.objects.values_list("name", flat=True)) or "none"
        raise ReplayError(f"pool {pool_name!r} is unknown; pools: {known}")
    rounds = Round.objects.filter(pool=pool).select_related("pool").order_by("number")
    if every:
        kept = RoundBlob.objects.filter(pool=pool).values_list("number", flat=True)
        return list(rounds.filter(number__in=list(kept)))
    if not numbers:
        raise ReplayError("name at least one round, or give --all")
    by_number = {round_.number: round_ for round_ in rounds.filter(number__in=numbers)}
    missing = [number for number in numbers if number not in by_number]
    if missing:
        raise ReplayError(f"pool {pool_name} has no round {missing[0]}")
    return [by_number[number] for number in numbers]


def round_bytes(round_: Round) -> tuple[bytes, bytes]:
    """Return the canonical bytes (snapshot, decision) that were stored with a round.

    Raises:
        ReplayError: they are no longer kept.
    """
    blob = RoundBlob.objects.filter(pool_id=round_.pool_id, number=round_.number).first()
    if blob is None:
        raise ReplayError(f"the bytes of round {round_.number} are no longer kept")
    return zlib.decompress(bytes(blob.snapshot)), zlib.decompress(bytes(blob.decision))


def round_decision(round_: Round) -> Decision:
    """Return the stored decision of a round.

    Raises:
        ReplayError: it is no longer kept.
    """
    return decode(round_bytes(round_)[1], Decision)


def replay_stored_round(round_: Round) -> Replay:
    """Decide a stored snapshot again, here, and compare with what was stored.

    Raises:
        ReplayError: the bytes are no longer kept.
    """
    snapshot_bytes, decision_bytes = round_bytes(round_)
    again = canonical_bytes(decide_round(decode(snapshot_bytes, Snapshot)))
    snapshot_sha256, decision_sha256 = sha256_hex(snapshot_bytes), sha256_hex(again)
    same = (
        again == decision_bytes
        and snapshot_sha256 == round_.snapshot_sha256
        and decision_sha256 == round_.decision_sha256
    )
    certified = certificate_same(
        round_, decode(snapshot_bytes, Snapshot), decode(decision_bytes, Decision)
    )
    return Replay(snapshot_sha256, decision_sha256, same, certified)


def certificate_same(round_: Round, snapshot: Snapshot, decision: Decision) -> bool | None:
    """Return whether a round's stored bytes certify as they did when they were decided.

    None where it has no certificate, or one of another version.
    """
    stored = round_.certificate
    if not stored or stored.get("version") != VERSION:
        return None
    return bool(plain(certify_round(snapshot, decision)) == stored)
