"""Max-min: every tenant has its part of every GPU type.

Source: OEF (Middleware 2024), 2.3.3. Shares in proportion to weights; what a tenant cannot use goes
to the others.
"""

from __future__ import annotations

from scheduling.domain.decision import Decision
from scheduling.domain.snapshot import Snapshot
from scheduling.formulations.shares import Rule
from scheduling.policies.policy import parse_options
from scheduling.policies.sharing import VERSION, SharingOptions, decide_shares


class MaxMin:
    """The policy; see the module's docstring."""

    name = "max_min"
    version = VERSION
    options_type = SharingOptions

    def decide(self, snapshot: Snapshot) -> Decision:
        """Answer one round."""
        options = parse_options(SharingOptions, snapshot.options)
        return decide_shares(snapshot, options, Rule.MAX_MIN)


POLICY = MaxMin()
