"""The certificate of a round: what was promised of it, and what is measured.

Nothing here knows a policy (0090). What it promises, and how it would decide other snapshots, is
passed in; `evenshare_core.policies.base.certify_round` does that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.certificate import Certificate, Property, certificate
from evenshare_core.fairness.declared import check_declared, declared_item
from evenshare_core.fairness.guarantee import Guarantee
from evenshare_core.fairness.job_value import ValueRule
from evenshare_core.fairness.measure import Measured
from evenshare_core.fairness.misreports import Decide, probe_row
from evenshare_core.fairness.properties import Probe

# One row a round is probed, up and down; the next round probes the next one.
FACTORS = (1.25, 0.8)
# A probe is a whole decision. Larger rounds are probed on demand only.
MAX_PROBED_ROWS, MAX_PROBED_JOBS = 40, 400
UNTRIED = "the misreport could not be tried: "


class Promises(NamedTuple):
    """What a policy promises of a round.

    `deserves_quota`: in the order of long-term fairness a tenant deserves its quota at all times,
    else min(demand, quota). `guarantee`: to whom quotas are guaranteed in it by ending leases;
    None: to nobody. `owners_first`: quotas are guaranteed by beginning nothing that borrows where
    an owner's job waits. `value_rule`: how jobs are taken that do not say what they are worth.
    `reads_speeds`: it looks at speeds of job types, so that what was declared of them shows.
    """

    properties: frozenset[Property]
    deserves_quota: bool = False
    guarantee: Guarantee | None = None
    owners_first: bool = False
    value_rule: ValueRule | None = None
    reads_speeds: bool = False


def certify(
    snapshot: Snapshot,
    decision: Decision,
    *,
    promised: Callable[[Measured], Promises],
    decide: Decide,
) -> Certificate:
    """Return the certificate of a round: a pure function of what is stored of it.

    It never raises: what goes wrong is its `failure`, for no round may stop for want of one.
    Source: docs/fairness.md.
    """
    try:
        measured = Measured(snapshot, decision, frozenset())
        promises = promised(measured)
        measured.promised, measured.deserves_quota = promises.properties, promises.deserves_quota
        measured.guarantee, measured.owners_first = promises.guarantee, promises.owners_first
        measured.value_rule = promises.value_rule
        probes, why = None, ""
        try:
            probes = _sampled(snapshot, measured, decide)
        except Exception as error:  # noqa: BLE001 - the other lines are worth having without it
            why = f"{UNTRIED}{type(error).__name__}: {error}"[:300]
        findings = measured.findings(probes, why)
        if not promises.reads_speeds or not snapshot.measured:
            return certificate(findings, measured.rows())
        declared = check_declared(snapshot)
        findings = (*findings, declared_item(declared))
        return certificate(findings, measured.rows(), overclaims=declared.overclaims)
    except Exception as error:  # noqa: BLE001 - a failure to measure is a result, and is shown
        return certificate((), failure=f"{type(error).__name__}: {error}"[:300])


def _sampled(snapshot: Snapshot, measured: Measured, decide: Decide) -> list[Probe] | None:
    """Probe one row with speeds, in turn by the round's number; None where none is."""
    rows = measured.judged.rows
    known = [place for place, (_, profile) in enumerate(rows) if profile]
    if not measured.has_ideals or not known:
        return None
    if len(rows) > MAX_PROBED_ROWS or len(snapshot.jobs) > MAX_PROBED_JOBS:
        return None
    place = known[snapshot.number % len(known)]
    return probe_row(measured, place, FACTORS, decide)
