"""OEF: optimal efficiency with fairness on heterogeneous GPUs, as a round policy.

Source: OEF (Middleware 2024). The programs (9) and (10) are in
`evenshare_core.formulations.shares`, with what they promise and what they do not; 4.2.4 and 4.3,
from fractions to leases, in `evenshare_core.policies.sharing.base`.

| paper | here | unit |
|---|---|---|
| l, virtual tenants | `sharing_rows.Row`: (tenant, profile) | |
| j, GPU types, slowest first | `sharing_rows.Column` | |
| w_lj | `Profile.speedups` relative to the slowest type | ratio |
| pi_l | quotas over all types, divided by priorities | GPUs |
| x_lj, ideal_lj | `Row.ideal`, `Decision.ideals` | micro-GPUs, GPUs |
| real_lj | `Row.real` | GPUs |
| dev_lj | `Row.deviation` | micro-GPU-microseconds |

Departures, each with its test:
- Leases outlast rounds, so deviations go on with time, not with rounds
  (tests/papers/test_oef_rounds.py::TestSkipping).
- A lease has one GPU type: no gang is placed over several, and small gangs are compared type by
  type (tests/unit/core/test_rounding.py::TestSmallGangs).
- A job whose lease ends stays on its GPU type while its tenant has GPUs there; a faster one would
  cost it a restart (tests/papers/test_oef_rounds.py::TestTypes).
- A tenant without quota, which the paper does not know, gets leftovers only
  (tests/papers/test_oef_rounds.py::TestWithoutQuota).
"""

from __future__ import annotations

from typing import Literal

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.formulations.shares import Rule
from evenshare_core.policies.policy import parse_options
from evenshare_core.policies.sharing.base import VERSION, SharingOptions, decide_shares


class OefOptions(SharingOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of OEF.

    `environment`: "cooperative" is (10), no tenant envies another, and the total is the largest
    that allows; "noncooperative" is (9), all tenants gain alike, and none gains by overstating
    one job type's speeds.
    `backend`: what solves the program; "fast" is the method made for it, the others write it out
    for a solver and are there to check it.
    `job_order`: who comes first inside a job type, the job that has waited longest since it last
    ran, or the one that was submitted first.
    `reserve_after_leases`: after how many leases nodes are held back for a job that its job type's
    whole GPUs have room for and the nodes do not; 0: never.
    `spread`: a gang that fits one node may also be split over several.
    """

    environment: Literal["cooperative", "noncooperative"] = "cooperative"


class Oef:
    """The policy; see the module's docstring."""

    name = "oef"
    version = VERSION
    options_type = OefOptions

    def decide(self, snapshot: Snapshot) -> Decision:
        """Answer one round."""
        options = parse_options(OefOptions, snapshot.options)
        return decide_shares(snapshot, options, Rule(options.environment))


POLICY = Oef()
