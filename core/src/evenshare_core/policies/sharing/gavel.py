"""Gavel: the least normalised throughput is raised as far as it goes.

Source: OEF (Middleware 2024), 2.4 and 6.1.3, of Gavel (OSDI 2020): max over X of the least
w_l . x_l relative to what an equal split would give the tenant, then of the next. Simplification:
Gavel turns X into time fractions and serves jobs by priority; here shares become leases as in every
sharing policy.
"""

from __future__ import annotations

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.formulations.shares import Rule
from evenshare_core.policies.policy import parse_options
from evenshare_core.policies.sharing.base import VERSION, SharingOptions, decide_shares


class Gavel:
    """The policy; see the module's docstring."""

    name = "gavel"
    version = VERSION
    options_type = SharingOptions

    def decide(self, snapshot: Snapshot) -> Decision:
        """Answer one round."""
        options = parse_options(SharingOptions, snapshot.options)
        return decide_shares(snapshot, options, Rule.GAVEL)


POLICY = Gavel()
