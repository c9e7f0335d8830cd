"""The base of policies that place jobs in a fixed order."""

from abc import abstractmethod

from evenshare_core.domain.decision import Decision
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.policies.policy import Policy
from evenshare_core.policies.shared.ordered import QueueRule, decide_in_order, order_of


class OrderedPolicy(Policy):
    """A policy that decides its rounds by a `QueueRule`."""

    @abstractmethod
    def rule(self, snapshot: Snapshot) -> QueueRule:
        """Return the order of jobs, and its rules, for a round."""

    def decide(self, snapshot: Snapshot) -> Decision:
        return decide_in_order(snapshot, self.rule(snapshot))

    def queue_order(self, snapshot: Snapshot) -> tuple[int, ...]:
        return order_of(snapshot, self.rule(snapshot))
