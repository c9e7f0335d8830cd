"""Test that a pool keeps the state of a GPU type longer than its nodes.

The state has prices, quotas reported to billing, and GPU-time sums. The tests run random sequences
of operators' changes and rounds, and check books and replay after each of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from billing.checks import run_checks
from billing.metering import meter_pool, settle_pool
from evenshare_core.domain.snapshot import Service, Snapshot
from evenshare_core.domain.values import decode
from evenshare_core.money.fixed_point import to_text
from scheduling.engine.rounds import RoundOutcome
from scheduling.models import GpuType, LeaseEvent, LeaseSlot, Node
from scheduling.requests.nodes import NodeRequest
from scheduling.requests.pools import PriceRequest
from scheduling.selectors.rounds.replay import find_rounds, replay_stored_round
from scheduling.selectors.rounds.stored import round_bytes
from scheduling.services import nodes, pools
from tenants.audit import Actor
from tenants.models import Quota, User
from tests.factories import BEGIN, Cluster, cluster
from tests.round_states import left_by

TYPES = ("a100", "k80", "v100")
STEPS = 20


class Last(random.Random):
    """A random source that draws the last of its choices: the largest job, the GPU type v100."""

    def choice(self, seq: Any) -> Any:
        return seq[-1]


class Memory:
    """A pool that an operator changes, and the state that the pool must keep."""

    def __init__(self, actor: Actor, seed: int, policy: str) -> None:
        self.actor, self.draw = actor, random.Random(seed)  # noqa: S311 - a seeded story
        self.lab: Cluster = cluster({"a": 6, "b": 2}, nodes=1, lease_s=30, policy=policy)
        self.nodes = 0
        self.sums: dict[tuple[int, str], tuple[int, ...]] = {}
        self.steps: list[str] = []

    # The steps.

    def submit(self) -> None:
        tenant, gpus = self.draw.choice("ab"), self.draw.choice((1, 2, 4))
        types = self.draw.choice(([], [self.draw.choice(TYPES)]))
        self.lab.submit(tenant, gpus, self.draw.choice((15, 400)), gpu_types=types)

    def add(self) -> None:
        self.nodes += 1
        gpu_type = self.draw.choice(TYPES)
        request = NodeRequest(
            pool=self.lab.pool.name, name=f"x{self.nodes}", gpu_type=gpu_type, gpus=4
        )
        nodes.add_node(actor=self.actor, pool=self.lab.pool, request=request)
        kind = GpuType.objects.get(name=gpu_type)
        for slug, gpus in (("a", 3), ("b", 1)):
            Quota.objects.get_or_create(
                tenant=self.lab.tenants[slug], pool=self.lab.pool, gpu_type=kind,
                defaults={"gpus": gpus, "valid_from": BEGIN},
            )  # fmt: skip

    def drain(self) -> None:
        """Drain all nodes of a type, as an operator does before it is removed from a cluster."""
        gpu_type = self.draw.choice(TYPES)
        for name in self._names(gpu_type__name=gpu_type, state=Node.State.UP):
            nodes.drain_node(actor=self.actor, pool=self.lab.pool, name=name, reason="fan")

    def remove(self) -> None:
        for node in Node.objects.filter(pool=self.lab.pool, state=Node.State.DRAINED):
            if not LeaseSlot.objects.filter(node=node, holding=True).exists():
                nodes.remove_node(actor=self.actor, pool=self.lab.pool, name=node.name)

    def resume(self) -> None:
        for name in self._names(state=Node.State.DRAINED):
            nodes.resume_node(actor=self.actor, pool=self.lab.pool, name=name)

    def price(self) -> None:
        known = Node.objects.filter(pool=self.lab.pool).values_list("gpu_type__name", flat=True)
        if not known:
            return
        gpu_type = self.draw.choice(sorted(known))
        base = Decimal(self.draw.choice(("1", "2.5")))
        request = PriceRequest(gpu_type=gpu_type, base=base, theta=Decimal(3))
        pools.set_price(actor=self.actor, pool_id=self.lab.pool.pk, request=request)

    def expire(self) -> None:
        """Make every lease expire; leases on drained nodes end."""
        for _ in range(4):
            self.round()

    def round(self) -> None:
        outcome = self.lab.round(after_s=10).outcome
        assert outcome in (RoundOutcome.COMMITTED, RoundOutcome.QUIET), self.steps
        if self.draw.random() < 0.5:
            self.meter()

    def meter(self) -> None:
        meter_pool(self.lab.pool.pk)
        settle_pool(self.lab.pool.pk)

    def _names(self, **wanted: Any) -> list[str]:
        found = Node.objects.filter(pool=self.lab.pool, **wanted).order_by("name")
        return list(found.values_list("name", flat=True))

    # Invariants that are checked after each step.

    def step(self, name: str) -> None:
        self.steps.append(name)
        change: Callable[[], None] = getattr(self, name)
        change()
        if name not in ("round", "expire"):
            self.round()
        self.check()

    def check(self) -> None:
        state = left_by(self.lab.pool)
        events = LeaseEvent.objects.filter(pool=self.lab.pool).order_by("number")
        posted: dict[str, str] = {}
        entitled: dict[str, Any] = {}
        for data in events.filter(kind="priced").values_list("data", flat=True):
            posted |= {row["gpu_type"]: row["price"] for row in data["prices"]}
        for data in events.filter(kind="entitled").values_list("data", flat=True):
            entitled[data["gpu_type"]] = {key: data[key] for key in ("capacity", "quotas")}
        kept = {row["gpu_type"]: to_text(row["price_micro"]) for row in state.prices}
        assert kept == posted, self.steps
        assert state.entitled == entitled, self.steps
        here = set(Node.objects.filter(pool=self.lab.pool).values_list("gpu_type__name", flat=True))
        gone = [row["capacity"] for name, row in entitled.items() if name not in here]
        if self.steps[-1] != "remove":  # or the last round was quiet, and no event came after it
            assert not any(gone), self.steps
        self._check_sums(state.sums())
        broken = [f"{row.name}: {row.violations}" for row in run_checks() if not row.ok]
        assert not broken, self.steps
        last = find_rounds(self.lab.pool.name, [], every=True)[-1]
        assert replay_stored_round(last).same, self.steps
        snapshot = decode(round_bytes(last)[0], Snapshot)
        assert {row.gpu_type for row in snapshot.prices} >= {n.gpu_type for n in snapshot.nodes}

    def _check_sums(self, service: Service) -> None:
        """Check that GPU-time sums only grow, and that no claim is forgotten."""
        now: dict[tuple[int, str], tuple[int, ...]] = {
            (row.tenant, row.gpu_type): (row.alloc_gpu_us, row.fair_gpu_us, row.entitled_gpu_us)
            for row in service.claims
        }
        for key, before in self.sums.items():
            assert key in now, self.steps
            assert all(b <= n for b, n in zip(before, now[key], strict=True)), self.steps
        self.sums = now


MOVES = ("submit", "add", "drain", "remove", "resume", "price", "round", "expire")
WEIGHTS = (5, 2, 3, 3, 1, 1, 2, 2)
# All nodes of the only type are removed while their price is high, and added again later.
OUT_AND_IN = ("submit", "submit", "submit", "drain", "expire", "remove", "round", "add", "submit")


@pytest.fixture
def actor(committed_db: str) -> Actor:
    assert committed_db
    user = User.objects.create(username="otto", site_role=User.SiteRole.OPERATOR)
    return Actor(user, "request-1")


class TestPoolMemory:
    """State of a GPU type that is removed and added again."""

    def test_is_kept_while_its_only_type_is_away_for_two_rounds(self, actor: Actor) -> None:
        memory = Memory(actor, 1, "ltgf")
        memory.draw = Last()
        for name in OUT_AND_IN:
            memory.step(name)
        (price,) = left_by(memory.lab.pool).prices
        assert price["gpu_type"] == "v100"

    @pytest.mark.parametrize(("seed", "policy"), list(enumerate(("gavel", "ltgf", "srtf"))))
    def test_survives_random_sequences_of_changes(
        self, actor: Actor, seed: int, policy: str
    ) -> None:
        memory = Memory(actor, seed, policy)
        for _ in range(STEPS):
            memory.step(memory.draw.choices(MOVES, WEIGHTS)[0])
        memory.lab.at += timedelta(hours=1)
        memory.step("round")
        memory.meter()
        memory.check()
