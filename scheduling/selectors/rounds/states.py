"""The state that a pool's last round left for the next: sums, policy memory, posted prices.

Each round leaves a row that never changes, and records the row's hash. If the row does not match,
the state is taken from the round's decision (docs/adr/0198-sums-are-history.md).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec
import structlog

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import Service
from evenshare_core.domain.values import canonical_bytes, decode, sha256_hex
from scheduling.models import PoolFence, Round, RoundArchive, RoundState
from scheduling.selectors.rounds.files import ArchiveError, archive_of, read_state
from scheduling.selectors.rounds.stored import (
    STATE,
    Damage,
    ReplayError,
    byte_damages,
    round_decision,
    row_damages,
    unpacked,
)

log = structlog.get_logger(__name__)


class MissingStateError(Exception):
    """The last round's state is lost: its row is missing, and its bytes are not kept."""


@dataclass(frozen=True, slots=True)
class LeftState:
    """The state that a round left for the next one.

    `service` and `memory` are canonical bytes. `prices`: the last posted price of each GPU type.
    `entitled`: the quotas reported to billing, by GPU type. `note`: why the next round does not
    start from the stored row, or "" if it does.
    """

    number: int
    at: datetime
    policy: str
    policy_version: str
    service: bytes
    memory: bytes
    prices: list[dict[str, Any]]
    entitled: dict[str, Any]
    note: str = ""

    def sha256(self) -> str:
        """Return the hash that the round records; no part contains a line feed."""
        parts = (
            self.policy.encode(),
            self.policy_version.encode(),
            self.service,
            self.memory,
            canonical_bytes(self.prices),
            canonical_bytes(self.entitled),
        )
        return sha256_hex(b"\n".join(parts))

    def sums(self) -> Service:
        return decode(self.service, Service)

    def remembered(self, policy: str, version: str) -> dict[str, Any]:
        """Return the policy's memory; empty if another policy or version left it."""
        if (self.policy, self.policy_version) != (policy, version):
            return {}
        memory: dict[str, Any] = msgspec.json.decode(self.memory)
        return memory


def read_left_state(pool_id: int) -> LeftState:
    """Return the state that the pool's last round left; the caller provides a consistent read.

    If the row does not match the round's hash, the state is taken from the round's decision. If the
    decision is no longer kept, the row is used. `note` reports either case.

    Raises:
        MissingStateError: neither the row nor the decision exists.
    """
    fence = PoolFence.objects.values_list("next_round", flat=True)
    number = fence.get(pool_id=pool_id) - 1
    rows = list(RoundState.objects.filter(pool_id=pool_id, number=number).order_by("day"))
    # Skip the long columns that are only for display.
    rounds = Round.objects.filter(pool_id=pool_id, number=number)
    round_ = rounds.defer("summary", "shares", "superseded", "certificate").first()
    whole, why = _whole(rows, round_, number)
    if whole is not None:
        return whole
    log.error("round.state_damaged", pool=pool_id, round=number, why=why)
    states = [state for row in rows if (state := _read(row)) is not None]
    if round_ is not None:
        try:
            return _of_decision(round_, round_decision(round_), states, why)
        except ReplayError as error:
            why = f"{why}, and {error}"
    if not states:
        raise MissingStateError(why)
    return replace(states[0], note=f"{why}: its sums were not checked")


def posted_rows(pool_id: int) -> list[dict[str, Any]]:
    """Return the last posted prices, by GPU type; empty before the first round. A single query."""
    last = RoundState.objects.filter(pool_id=pool_id).order_by("-number", "-day")
    return last.values_list("prices", flat=True).first() or []


def posted_prices(before: Iterable[Mapping[str, Any]], decision: Decision) -> list[dict[str, Any]]:
    """Return the last posted price of each GPU type after a decision; `before`: earlier prices.

    A GPU type whose nodes were all removed keeps its price. Billing uses that price until the next
    one is posted, and so does the first round that has such nodes again. Base and theta are the
    values with which the price was posted.
    """
    posted = {row["gpu_type"]: dict(row) for row in before}
    for price in decision.prices:
        posted[price.gpu_type] = {
            "gpu_type": price.gpu_type,
            "price_micro": price.price_micro,
            "used": price.used,
            "capacity": price.capacity,
            "base_micro": price.base_micro,
            "theta_milli": price.theta_milli,
        }
    for row in decision.surcharges:
        posted[row.gpu_type] |= {"queued": row.queued, "surcharge_micro": row.surcharge_micro}
    return [posted[gpu_type] for gpu_type in sorted(posted)]


def state_damages(round_: Round) -> tuple[Damage, ...]:
    """Return what is wrong with the state that a round left, if the state is kept.

    The newest round must have its state; older states are moved to files with their rounds' bytes.
    """
    if not round_.state_sha256:
        return ()
    rows = list(RoundState.objects.filter(pool_id=round_.pool_id, number=round_.number))
    whole, _ = _whole(rows, round_, round_.number)
    if whole is not None:
        return ()
    if not rows:
        newer = Round.objects.filter(pool_id=round_.pool_id, number__gt=round_.number)
        why = "is missing, although the next round starts with it"
        if not newer.exists():
            return (Damage(STATE, why, round_.state_sha256),)
        archive = archive_of(round_.pool_id, round_.number)
        return _filed_damages(round_, archive) if archive else ()
    state = _read(rows[0])
    actual = "" if state is None else state.sha256()
    return (Damage(STATE, "differs from the saved state", round_.state_sha256, actual),)


def _filed_damages(round_: Round, archive: RoundArchive) -> tuple[Damage, ...]:
    expected = round_.state_sha256
    try:
        fields = read_state(archive, round_.number)
    except ArchiveError as error:
        return (Damage(STATE, str(error), expected),)
    try:
        row = RoundState(number=round_.number, **fields)
        state = _read(row)
        actual = "" if state is None else state.sha256()
    except (AttributeError, TypeError, ValueError):
        actual = ""
    why = f"differs from the saved state, in the file {archive.name}"
    return () if actual == expected else (Damage(STATE, why, expected, actual),)


def damages_of(round_: Round) -> tuple[Damage, ...]:
    """Return everything that is wrong with a round, read `with_seals`."""
    return (*row_damages(round_), *byte_damages(round_), *state_damages(round_))


def _whole(
    rows: list[RoundState], round_: Round | None, number: int
) -> tuple[LeftState | None, str]:
    """Return the state that a round left, or None and why none of these rows is valid."""
    name = f"the state that round {number} left"
    if not rows:
        return None, f"{name} is missing"
    if round_ is None and number > 0:
        return None, f"round {number} is missing, though another one was to follow it"
    states = [state for row in rows if (state := _read(row)) is not None]
    if round_ is not None and round_.state_sha256:
        for state in states:
            if state.sha256() == round_.state_sha256:
                return state, ""
        return None, f"{name} does not match its hash"
    # The start of a pool, or a round that was stored before rounds recorded the hash.
    if len(states) == 1 and len(rows) == 1:
        return states[0], ""
    return None, f"{name} is there {len(rows)} times" if states else f"{name} cannot be read"


def _read(row: RoundState) -> LeftState | None:
    service, memory = unpacked(bytes(row.service)), unpacked(bytes(row.memory))
    if service is None or memory is None:
        return None
    return LeftState(
        row.number, row.at, row.policy, row.policy_version, service, memory,
        row.prices if isinstance(row.prices, list) else [],
        row.entitled if isinstance(row.entitled, dict) else {},
    )  # fmt: skip # rows of what belongs together


def _of_decision(round_: Round, decision: Decision, states: list[LeftState], why: str) -> LeftState:
    """Return the state from the decision; prices of types without nodes come from the rows."""
    before = states[0].prices if states else []
    return LeftState(
        round_.number, round_.at, round_.policy, round_.policy_version,
        canonical_bytes(decision.service), canonical_bytes(decision.memory),
        posted_prices(before, decision), states[0].entitled if states else {},
        f"{why}: it was taken from the decision",
    )  # fmt: skip # rows of what belongs together
