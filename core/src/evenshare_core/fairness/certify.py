"""The certificate of a round: what was promised of it, and what is measured.

Nothing here knows a policy (0200). What it promises, and how it would decide other snapshots, is
passed in; `evenshare_core.policies.base.certify_round` does that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.certificate import Certificate, Property, certificate
from evenshare_core.fairness.declared import check_declared, declared_item
from evenshare_core.fairness.guarantee import Guarantee
from evenshare_core.fairness.job_value import ValueRule
from evenshare_core.fairness.measure import Measured, TriedMisreports
from evenshare_core.fairness.misreports import (
    IdealsOf,
    Misreport,
    misreports_of,
    probe_row,
    profile_of,
)
from evenshare_core.fairness.order import OrderRule

# One row a round is probed, so often above the truth and as often below it; the next round probes
# the next row, and in its next turn a row is probed by what was not tried before.
BUDGET = 2
# A probe solves the policy's program. Larger rounds are probed on demand only.
MAX_PROBED_ROWS, MAX_PROBED_JOBS = 40, 400
UNTRIED = "the misreport could not be tried: "


class Promises(NamedTuple):
    """What a policy promises of a round.

    `order`: by which rule those go first who received least for their due; None: by none.
    `guarantee`: to whom quotas are guaranteed in it by ending leases;
    None: to nobody. `owners_first`: quotas are guaranteed by beginning nothing that borrows where
    an owner's job waits. `value_rule`: how jobs are taken that do not say what they are worth.
    `reads_speeds`: it looks at speeds of job types, so that what was declared of them shows.
    `proofs`: by what it is known that a property holds, whatever was tried of it.
    """

    properties: frozenset[Property]
    order: OrderRule | None = None
    guarantee: Guarantee | None = None
    owners_first: bool = False
    value_rule: ValueRule | None = None
    reads_speeds: bool = False
    proofs: Mapping[Property, str] = {}


def certify(
    snapshot: Snapshot,
    decision: Decision,
    *,
    promised: Callable[[Measured], Promises],
    ideals_of: IdealsOf,
) -> Certificate:
    """Return the certificate of a round: a pure function of what is stored of it.

    It never raises: what goes wrong is its `failure`, for no round may stop for want of one.
    Source: docs/fairness.md.
    """
    try:
        measured = Measured(snapshot, decision, frozenset())
        promises = promised(measured)
        measured.promised, measured.order = promises.properties, promises.order
        measured.guarantee, measured.owners_first = promises.guarantee, promises.owners_first
        measured.value_rule, measured.proofs = promises.value_rule, promises.proofs
        tried, why = None, ""
        try:
            tried = _sampled(snapshot, measured, ideals_of)
        except Exception as error:  # noqa: BLE001 - the other lines are worth having without it
            why = f"{UNTRIED}{type(error).__name__}: {error}"[:300]
        findings = measured.findings(tried, why)
        if not promises.reads_speeds or not snapshot.measured:
            return certificate(findings, measured.rows())
        declared = check_declared(snapshot)
        findings = (*findings, declared_item(declared))
        return certificate(findings, measured.rows(), overclaims=declared.overclaims)
    except Exception as error:  # noqa: BLE001 - a failure to measure is a result, and is shown
        return certificate((), failure=f"{type(error).__name__}: {error}"[:300])


def _sampled(snapshot: Snapshot, measured: Measured, ideals_of: IdealsOf) -> TriedMisreports | None:
    """Probe one row with speeds, in turn by the round's number; None where none is."""
    rows = measured.judged.rows
    known = [place for place, (_, profile) in enumerate(rows) if profile]
    if not measured.has_ideals or not known:
        return None
    if len(rows) > MAX_PROBED_ROWS or len(snapshot.jobs) > MAX_PROBED_JOBS:
        return None
    turn, index = divmod(snapshot.number, len(known))
    place = known[index]
    profile = profile_of(snapshot, rows[place][1])
    over, under = misreports_of(profile, measured.judged.gpu_types)
    return TriedMisreports(
        probe_row(measured, place, _in_turn(over, turn), ideals_of),
        len(over),
        probe_row(measured, place, _in_turn(under, turn), ideals_of),
        len(under),
    )


def _in_turn(misreports: Sequence[Misreport], turn: int) -> list[Misreport]:
    """Those that a row is probed by in its turn: after enough turns, each of them."""
    count = len(misreports)
    first = turn * BUDGET
    return [misreports[(first + step) % count] for step in range(min(BUDGET, count))]
