"""Check that a round's decision was applied, or that the records show why not. Pure.

Each part that was not applied has a reason of `SupersededReason`. The reason is compared with two
records: the round itself and the next round. If neither confirms the reason, it is not proven: its
cause may have appeared and disappeared between the two rounds.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from evenshare_core.disclosure.bundle import Disclosed
from evenshare_core.domain.decision import Grant, Renew
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.reasons import SupersededReason as Why
from evenshare_core.money.fixed_point import worst_case_micro
from evenshare_core.verification.following_ids import Pairing, pairing_of

Row = Mapping[str, Any]
_OF_ITEM = {
    "grant": frozenset(Why) - {Why.LEASE_ENDED},
    "renewal": frozenset({Why.LEASE_ENDED, Why.CREDIT, Why.BUDGET, Why.UNSTORABLE}),
    "end": frozenset(
        {Why.LEASE_ENDED, Why.SPARED_NO_CREDIT, Why.SPARED_JOB_GONE, Why.SPARED_NODE_GONE}
    ),
}
_UNFUNDED = frozenset({Why.CREDIT, Why.BUDGET, Why.UNSTORABLE})
_SPARED = frozenset({Why.SPARED_NO_CREDIT, Why.SPARED_JOB_GONE, Why.SPARED_NODE_GONE})


def superseded_breaks(disclosed: Disclosed) -> Iterator[str]:
    """Yield the superseded rows that have no reason, or that the decision does not contain."""
    decided = _decided(disclosed)
    for row in disclosed.superseded:
        key = (row["item"], row["id"])
        if key not in decided:
            yield f"the {_text(disclosed, row)} was not carried out, and was not decided"
        elif not row["why"].strip():
            yield f"the {_text(disclosed, row)} was not carried out, and no reason is given"


def superseded_gaps(disclosed: Disclosed, after: Disclosed | None) -> Iterator[str]:
    """Yield reasons that the records do not confirm; `after` is the next round, if available."""
    ids = None if after is None else pairing_of(disclosed, after)
    for row in disclosed.superseded:
        label = f"the {_text(disclosed, row)} was not carried out"
        why = next((why for why in Why if why.value == row["why"]), None)
        if why is None or why not in _OF_ITEM[row["item"]]:
            if row["why"].strip():
                yield f"{label}, for a reason that is not known here: {row['why'][:80]!r}"
        elif after is None or ids is None:
            yield f"{label} ({why.value}), and the round after is not at hand"
        elif not _Records(disclosed, after, ids).show(why, row):
            yield f"{label} ({why.value}), which round {after.round} does not show"


def held_gpus(disclosed: Disclosed) -> dict[tuple[int, str], int]:
    """Return by tenant and GPU type how many more GPUs are held than were decided.

    The difference is negative if a grant or a renewal was not applied, and positive if a lease
    continues that should have ended.
    """
    decided, changes = _decided(disclosed), dict[tuple[int, str], int]()
    leases = {lease.id: lease for lease in disclosed.snapshot.leases}
    for row in disclosed.superseded:
        item = decided.get((row["item"], row["id"]))
        if isinstance(item, Lease):
            key, gpus = (item.tenant, item.gpu_type), leases[item.id].gpus
        elif item is not None:
            key, gpus = (item.tenant, item.gpu_type), -(item.own + item.borrowed)
        else:
            continue
        changes[key] = changes.get(key, 0) + gpus
    return changes


class _Records:
    """The evidence for a reason, in a round and the next one."""

    def __init__(self, disclosed: Disclosed, after: Disclosed, ids: Pairing) -> None:
        self._round, self._after, self._ids = disclosed, after, ids
        self._decided = _decided(disclosed)

    def show(self, why: Why, row: Row) -> bool:
        """Return whether the records confirm that a part was not applied for this reason."""
        item = self._decided.get((row["item"], row["id"]))
        if item is None:
            return False
        if why in _SPARED:
            return self._is_spared(item)
        if isinstance(item, Grant | Renew) and why in _UNFUNDED:
            return self._is_unfunded(item)
        if why is Why.LEASE_ENDED:
            return not self._goes_on(self._lease(row["id"]))
        if why is Why.JOB_GONE:
            job = self._ids.job(item.job)
            return all(one.id != job for one in self._after.snapshot.jobs)
        return isinstance(item, Grant) and self._has_fewer_gpus(item)

    def _lease(self, number: int) -> Lease:
        return next(lease for lease in self._round.snapshot.leases if lease.id == number)

    def _goes_on(self, lease: Lease) -> bool:
        job = self._ids.job(lease.job)
        return any(
            now.job == job and now.started_us == lease.started_us and now.term >= lease.term
            for now in self._after.snapshot.leases
        )

    def _is_spared(self, item: Grant | Renew | Lease) -> bool:
        """Return whether the job's lease continues, without a grant for the job that needed it."""
        ends = {end.lease for end in self._round.decision.ends if end.job == item.job}
        left_out = {(row["item"], row["id"]) for row in self._round.superseded}
        makers = [one for one in self._round.decision.preemptions if one.job == item.job]
        return (
            bool(ends and makers)
            and all(
                ("end", lease) in left_out and self._goes_on(self._lease(lease)) for lease in ends
            )
            and all(("grant", one.for_job) in left_out for one in makers)
        )

    def _is_unfunded(self, item: Grant | Renew) -> bool:
        """Return whether a term may cost more than its tenant's credit in the next round."""
        worst = worst_case_micro(item.borrowed, item.price_micro, self._lease_us(item))
        tenant = self._ids.tenant(item.tenant)
        left = [row.spendable_micro for row in self._after.snapshot.tenants if row.id == tenant]
        return worst > 0 and any(micro is not None and micro < worst for micro in left)

    def _lease_us(self, item: Grant | Renew) -> int:
        lengths = {row.job: row.lease_us for row in self._round.decision.lengths}
        return lengths.get(item.job, self._round.snapshot.lease_us)

    def _has_fewer_gpus(self, grant: Grant) -> bool:
        before = {node.id: node.gpus for node in self._round.snapshot.nodes}
        now = {node.id: node.gpus for node in self._after.snapshot.nodes}
        return any(now.get(node, 0) < before.get(node, 0) for node, _ in grant.placement)


def _decided(disclosed: Disclosed) -> dict[tuple[str, int], Grant | Renew | Lease]:
    """Return a decision's grants, renewals and ended leases by (item, id)."""
    decision = disclosed.decision
    leases = {lease.id: lease for lease in disclosed.snapshot.leases}
    return {
        **{("grant", item.job): item for item in decision.grants},
        **{("renewal", item.lease): item for item in decision.renewals},
        **{("end", end.lease): leases[end.lease] for end in decision.ends if end.lease in leases},
    }


def _text(disclosed: Disclosed, row: Row) -> str:
    names = disclosed.names.jobs if row["item"] == "grant" else disclosed.names.leases
    number = row["id"]
    name = names[number - 1] if 1 <= number <= len(names) else str(number)
    return f"grant to job {name}" if row["item"] == "grant" else f"{row['item']} of lease {name}"
