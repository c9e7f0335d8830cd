"""Max efficiency: the largest total throughput, and no fairness.

Source: OEF (Middleware 2024), eq. (4): the bound that fair policies are measured by. Tenants that
gain little from any type may get nothing but leftovers.
"""

from __future__ import annotations

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.formulations.shares import Rule
from evenshare_core.policies.policy import parse_options
from evenshare_core.policies.sharing.base import VERSION, SharingOptions, decide_shares


class MaxEfficiency:
    """The policy; see the module's docstring."""

    name = "max_efficiency"
    version = VERSION
    options_type = SharingOptions

    def decide(self, snapshot: Snapshot) -> Decision:
        """Answer one round."""
        options = parse_options(SharingOptions, snapshot.options)
        return decide_shares(snapshot, options, Rule.MAX_EFFICIENCY)


POLICY = MaxEfficiency()
