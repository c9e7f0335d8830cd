"""The certificate of a round: its promises, and their measurement.

This module knows no policy (ADR 0200). Callers pass the policy's promises and a function that
decides other snapshots; see `evenshare_core.policies.base.certify_round`.
"""

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

# Each round probes the row after the one that the previous round probed. A probe tries this many
# misreports above the truth and as many below it. The next probe of a row tries other misreports.
BUDGET = 2
# Every probe solves the policy's program, so rounds with more rows are probed only on demand.
MAX_PROBED_ROWS, MAX_PROBED_JOBS = 40, 400
UNTRIED = "the misreport could not be tried: "


class Promises(NamedTuple):
    """A policy's promises for a round.

    - `order`: the rule by which the claim with the least received over deserved is served first;
      `None` if there is no such rule.
    - `guarantee`: the quotas guaranteed by ending leases; `None` if there is no guarantee.
    - `owners_first`: quotas are guaranteed by starting no borrowing term while an owner's job
      waits.
    - `value_rule`: the value of jobs that do not state it.
    - `reads_speeds`: the policy reads speeds of job types, so that declared speeds matter.
    - `min_runtime_us`: the time for which a lease runs before it may end for other jobs.
    - `proofs`: for each property with a proof, the proof that it holds whatever was tried.
    """

    properties: frozenset[Property]
    order: OrderRule | None = None
    guarantee: Guarantee | None = None
    owners_first: bool = False
    value_rule: ValueRule | None = None
    reads_speeds: bool = False
    proofs: Mapping[Property, str] = {}
    min_runtime_us: int = 0


def certify(
    snapshot: Snapshot,
    decision: Decision,
    *,
    promised: Callable[[Measured], Promises],
    ideals_of: IdealsOf,
) -> Certificate:
    """Return the certificate of a round: a pure function of its stored data.

    It never raises: an error becomes its `failure`, because no round may stop for lack of a
    certificate.

    Source: docs/fairness.md.
    """
    try:
        measured = Measured(snapshot, decision, frozenset())
        promises = promised(measured)
        measured.promised, measured.order = promises.properties, promises.order
        measured.guarantee, measured.owners_first = promises.guarantee, promises.owners_first
        measured.value_rule, measured.proofs = promises.value_rule, promises.proofs
        measured.min_runtime_us = promises.min_runtime_us
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
    """Probe one row, chosen by the round's number, with other speeds; None without such a row."""
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
    """Return the misreports of a row that this turn tries; enough turns cover all of them."""
    count = len(misreports)
    first = turn * BUDGET
    return [misreports[(first + step) % count] for step in range(min(BUDGET, count))]
