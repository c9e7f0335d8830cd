"""OEF: optimal efficiency with fairness on heterogeneous GPUs, as a round policy.

Source: OEF (Middleware 2024). The programs (9) and (10) and their properties are in
`evenshare_core.formulations.shares`. Sections 4.2.4 and 4.3, from fractions to leases, are in
`evenshare_core.policies.sharing.base`.

| paper | here | unit |
|---|---|---|
| l, virtual tenants | `sharing.job_types.JobType`: (tenant, profile) | |
| j, GPU types, slowest first | `sharing.job_types.GpuTypeCapacity` | |
| w_lj | `Profile.speedups` relative to the slowest type | ratio |
| pi_l | quotas over all types, divided by priorities | GPUs |
| x_lj, ideal_lj | `JobType.ideal`, `Decision.ideals` | micro-GPUs, GPUs |
| real_lj | `JobType.real` | GPUs |
| dev_lj | `JobType.deviation` | micro-GPU-microseconds |

Departures, each with its test:

- Leases outlast rounds, so deviations grow with time, not with rounds
  (tests/papers/test_oef_rounds.py::TestSkippedRounds).
- A lease has one GPU type: no gang is placed over several types. A small gang is therefore compared
  with the share of each type (tests/unit/core/test_rounding.py::TestGangs).
- A job whose lease ends stays on its GPU type while its tenant has GPUs there. A move to a faster
  type would cost a restart (tests/papers/test_oef_rounds.py::TestGpuTypes).
- A tenant without quota, which the paper does not have, gets only leftover GPUs
  (tests/papers/test_oef_rounds.py::TestWithoutQuota).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

from msgspec import Meta

from evenshare_core.fairness.certificate import Property
from evenshare_core.fairness.measure import Measured
from evenshare_core.formulations.problems import ShareRule
from evenshare_core.policies.options import Options
from evenshare_core.policies.sharing.base import SharingOptions, SharingPolicy

COOPERATIVE = frozenset({Property.ENVY_FREE, Property.SHARING_INCENTIVE})
NONCOOPERATIVE = frozenset({Property.EQUAL_THROUGHPUT, Property.OVERSTATING})

PROOFS = MappingProxyType({Property.OVERSTATING: "OEF (Middleware 2024), theorem 5.4"})


class OefOptions(SharingOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of OEF: "cooperative" selects program (10), "noncooperative" program (9)."""

    environment: Annotated[
        Literal["cooperative", "noncooperative"],
        Meta(
            description="Promise to tenants: envy-freeness at the largest possible total"
            " (cooperative); or equal gains, and overstating the speeds of a tenant's only"
            " job type does not pay (noncooperative)."
        ),
    ] = "cooperative"


class Oef(SharingPolicy):
    name = "oef"
    title = "Optimal efficiency with fairness"
    promise = "Tenants trade GPU types so that all gain, and none prefers another's share."
    suits = "Mixed GPU types, and jobs that gain differently from the faster ones."
    options_type = OefOptions
    share_options = MappingProxyType(
        {
            "environment": (ShareRule.COOPERATIVE.value, ShareRule.NONCOOPERATIVE.value),
            **SharingPolicy.share_options,
        }
    )

    def rule(self, options: SharingOptions) -> ShareRule:
        return ShareRule(_environment(options))

    def proofs(self, options: Options) -> Mapping[Property, str]:
        """Return the proof that no tenant gains by overstating speeds, if this is promised."""
        return {} if _environment(options) == ShareRule.COOPERATIVE.value else PROOFS

    def promises(self, options: Options, measured: Measured | None = None) -> frozenset[Property]:
        """Return the promises of the chosen environment.

        The environment promises that no tenant gains by overstating speeds only if every tenant has
        one job type and no tenant is capped. With several job types, or with caps, this does not
        hold (4.2.4).
        """
        promised = super().promises(options, measured)
        if _environment(options) == ShareRule.COOPERATIVE.value:
            return promised | COOPERATIVE
        promised |= NONCOOPERATIVE
        if measured is not None and _limits_truth(measured):
            promised -= {Property.OVERSTATING}
        return promised


def _environment(options: Options) -> str:
    assert isinstance(options, OefOptions)  # noqa: S101 - narrows; they are of `options_type`
    return options.environment


def _limits_truth(measured: Measured) -> bool:
    tenants = [tenant for tenant, _ in measured.judged.rows]
    return len(set(tenants)) < len(tenants) or bool(measured.judged.capped.any())


POLICY = Oef()
