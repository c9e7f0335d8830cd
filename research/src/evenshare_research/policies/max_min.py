"""Max-min: every tenant has its share of every GPU type.

Source: OEF (Middleware 2024), 2.3.3. Shares are in proportion to weights. GPUs that a tenant cannot
use go to the others.
"""

from types import MappingProxyType

from evenshare_core.fairness.certificate import Property
from evenshare_core.formulations.problems import ShareRule
from evenshare_core.policies.sharing.base import SharingPolicy


class MaxMin(SharingPolicy):
    name = "max_min"
    title = "Max-min"
    promise = "Each tenant gets its part of every GPU type."
    suits = "An equal part of every GPU type for all tenants; to compare with oef."
    promised = frozenset({Property.SHARING_INCENTIVE})
    program = ShareRule.MAX_MIN

    share_options = MappingProxyType({})


POLICY = MaxMin()
