"""What each policy promises, and the certificate of a round of any policy.

    certify(snapshot, decision) -> Certificate

It is measured by `evenshare_core.fairness`, apart from the policies and their programs (0090). Here
are only the promises, and which misreports a round tries (`evenshare_core.policies.misreports`).
"""

from __future__ import annotations

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.certificate import Certificate, Property, certificate
from evenshare_core.fairness.measure import Measured
from evenshare_core.fairness.properties import Probe
from evenshare_core.policies.misreports import probe_row

P = Property
EVERY = frozenset({P.CAPACITY, P.GANG, P.SINGLE_HOLD})
# Beyond what every policy promises, by its name; `oef` by its environment, below.
PROMISES: dict[str, frozenset[Property]] = {
    "ltgf": frozenset({P.LONG_TERM_ORDER}),
    "max_min": frozenset({P.SHARING_INCENTIVE}),
    "gavel": frozenset({P.SHARING_INCENTIVE}),
    "max_efficiency": frozenset({P.PARETO}),
}
COOPERATIVE = frozenset({P.ENVY_FREE, P.SHARING_INCENTIVE})
NONCOOPERATIVE = frozenset({P.EQUAL_THROUGHPUT, P.OVERSTATING})

# One row a round is probed, up and down; the next round probes the next one.
FACTORS = (1.25, 0.8)
# A probe is a whole decision. Larger rounds are probed on demand only.
MAX_PROBED_ROWS, MAX_PROBED_JOBS = 40, 400


def promises(snapshot: Snapshot, measured: Measured | None = None) -> frozenset[Property]:
    """Return what the pool's policy promises for this snapshot.

    `oef` promises that overstating does not pay where every tenant has one job type and nobody
    has all that it can use; with several job types, or with caps, it is not true (OEF 4.2.4).
    """
    if snapshot.policy != "oef":
        return EVERY | PROMISES.get(snapshot.policy, frozenset())
    if snapshot.options.get("environment", "cooperative") == "cooperative":
        return EVERY | COOPERATIVE
    found = EVERY | NONCOOPERATIVE
    if measured is not None and _limits_truth(measured):
        found -= {P.OVERSTATING}
    return found


def _limits_truth(measured: Measured) -> bool:
    tenants = [tenant for tenant, _ in measured.judged.rows]
    return len(set(tenants)) < len(tenants) or bool(measured.judged.capped.any())


def certify(snapshot: Snapshot, decision: Decision) -> Certificate:
    """Return the certificate of a round: a pure function of what is stored of it.

    It never raises: what goes wrong is its `failure`, for no round may stop for want of one.
    Source: docs/fairness.md.
    """
    try:
        return _certify(snapshot, decision)
    except Exception as error:  # noqa: BLE001 - a failure to measure is a result, and is shown
        return certificate((), failure=f"{type(error).__name__}: {error}"[:300])


def _certify(snapshot: Snapshot, decision: Decision) -> Certificate:
    measured = Measured(snapshot, decision, frozenset())
    measured.promised = promises(snapshot, measured)
    probes, why = None, ""
    try:
        probes = _sampled(snapshot, measured)
    except Exception as error:  # noqa: BLE001 - the other lines are worth having without it
        why = f"the misreport could not be tried: {type(error).__name__}: {error}"[:300]
    return certificate(measured.findings(probes, why), measured.rows())


# ---- misreports ----


def _sampled(snapshot: Snapshot, measured: Measured) -> list[Probe] | None:
    """Probe one row with speeds, in turn by the round's number; None where none is."""
    rows = measured.judged.rows
    known = [place for place, (_, profile) in enumerate(rows) if profile]
    if not measured.has_ideals or not known:
        return None
    if len(rows) > MAX_PROBED_ROWS or len(snapshot.jobs) > MAX_PROBED_JOBS:
        return None
    place = known[snapshot.number % len(known)]
    return probe_row(measured, place, FACTORS)
