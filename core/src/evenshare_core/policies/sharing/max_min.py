"""Max-min: every tenant has its part of every GPU type.

Source: OEF (Middleware 2024), 2.3.3. Shares in proportion to weights; what a tenant cannot use goes
to the others.
"""

from __future__ import annotations

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.formulations.shares import Rule
from evenshare_core.policies.policy import parse_options
from evenshare_core.policies.sharing.base import VERSION, SharingOptions, decide_shares


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
