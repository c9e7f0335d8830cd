"""Test that a policy uses only the order of ids: with other ids it decides the same, byte for byte.

The tests cover every policy and its certificates, in consecutive rounds whose memory is stored in
between. So a round may be disclosed with numbers for ids (ADR 0195).
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from benchmarks.ltgf_pool import pool
from evenshare_core.disclosure import shapes
from evenshare_core.disclosure.redaction import redacted
from evenshare_core.disclosure.renaming import Ids, collected, ranks, renamed
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.ids import IdKind
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.domain.values import canonical_bytes, decode
from evenshare_core.fairness.certificate import plain
from evenshare_core.policies.base import certify_round, decide_round, queue_order
from evenshare_core.policies.registry import POLICIES
from tests.patience import few
from tests.unit.core.disclosed_rounds import cases, some_rounds
from tests.unit.core.test_every_policy import SLOW, TYPES, drawn

pytestmark = pytest.mark.usefixtures("quick_plans")

ROUNDS = 8
every_case = pytest.mark.parametrize(
    ("policy", "options"),
    [pytest.param(*case, id=f"{case[0]}-{json.dumps(case[1])}") for case in cases()],
)
some_pools = settings(max_examples=few(), database=None, suppress_health_check=list(HealthCheck))
seeds = st.integers(0, 10**6)


def ids_of_round(snapshot: Snapshot) -> dict[IdKind, tuple[int, ...]]:
    return collected(msgspec.to_builtins(snapshot), shapes.snapshot_plan(snapshot.policy))


def renamed_snapshot(snapshot: Snapshot, ids: Ids) -> Snapshot:
    """Return the snapshot with other ids, encoded and decoded to sort a memory's keys as text."""
    plan = shapes.snapshot_plan(snapshot.policy)
    new = msgspec.convert(renamed(msgspec.to_builtins(snapshot), plan, ids), Snapshot)
    return decode(canonical_bytes(new), Snapshot)


def renamed_decision(decision: Decision, policy: str, ids: Ids) -> Decision:
    plan = shapes.decision_plan(policy)
    return msgspec.convert(renamed(msgspec.to_builtins(decision), plan, ids), Decision)


def spread(ids: dict[IdKind, tuple[int, ...]]) -> Ids:
    """Return other ids in the same order, some of them with more digits."""
    return {
        kind: {0: 0, None: None} | {id_: 7 * id_ + 3 for id_ in rows} for kind, rows in ids.items()
    }


def is_same_under(snapshot: Snapshot, decision: Decision, *others: Ids) -> dict[str, Any]:
    """Check that renaming ids before or after a decision gives the same decision.

    Return the certificate.
    """
    certificate = plain(certify_round(snapshot, decision))
    assert "failure" not in certificate
    order = queue_order(snapshot, decision.service)
    for ids in others:
        other = renamed_snapshot(snapshot, ids)
        expected = renamed_decision(decision, snapshot.policy, ids)
        assert canonical_bytes(decide_round(other)) == canonical_bytes(expected)
        named: dict[str, Any] = json.loads(json.dumps(certificate))
        shapes.renamed_certificate(named, ids)
        assert named == plain(certify_round(other, expected))
        new_order = queue_order(other, expected.service)
        jobs = None if order is None else tuple(ids[IdKind.JOB][one] for one in order)
        assert new_order == jobs
    return certificate


@every_case
class TestRenamedIds:
    @given(seed=seeds)
    @some_pools
    def test_rounds_and_certificates_are_identical(
        self, policy: str, options: dict[str, Any], seed: int
    ) -> None:
        """The ids start at 1, as in a disclosed round, or are spread; the round may be redacted."""
        for snapshot, decision in some_rounds(policy, seed, ROUNDS, options):
            ids = ids_of_round(snapshot)
            certificate = is_same_under(snapshot, decision, ranks(ids), spread(ids))
            asked = decode(canonical_bytes(redacted(snapshot)), Snapshot)
            assert canonical_bytes(decide_round(asked)) == canonical_bytes(decision)
            assert plain(certify_round(asked, decision)) == certificate

    @given(seed=seeds)
    @some_pools
    def test_policy_memory_is_identical_over_rounds(
        self, policy: str, options: dict[str, Any], seed: int
    ) -> None:
        """The ids are renamed once, and the next rounds continue with the new ids."""
        rounds = some_rounds(policy, seed, ROUNDS, options)
        ids = {
            kind: tuple(sorted({id_ for row, _ in rounds for id_ in ids_of_round(row)[kind]}))
            for kind in ids_of_round(rounds[0][0])
        }
        memory: dict[str, Any] = {}
        for snapshot, decision in rounds:
            other = renamed_snapshot(snapshot, spread(ids))
            new = decode(canonical_bytes(decide_round(other)), Decision)
            assert canonical_bytes(other.memory) == canonical_bytes(memory)
            expected = renamed_decision(decision, policy, spread(ids))
            assert canonical_bytes(new) == canonical_bytes(expected)
            memory = new.memory


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_random_pool_decision_is_independent_of_ids(policy: str) -> None:
    """The pool has random options, protected leases and lost nodes, in the disclosed form."""
    for seed in range(12):
        asked = drawn(policy, seed, SLOW)
        decision = decode(canonical_bytes(decide_round(asked)), Decision)
        asked = redacted(asked)
        is_same_under(asked, decision, ranks(ids_of_round(asked)))


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_crowded_priced_pool_decision_is_independent_of_ids(policy: str) -> None:
    """A job that does not fit excludes equal jobs; irrelevant limits must not make jobs unequal.

    Regression: a maximum price above every price made jobs unequal, and changed the order under
    `evenshare`.
    """
    for seed in (6, 16):
        made = pool(
            seed=seed, nodes=12, tenants=8, pending=150, fill=0.8, expired=0.4, gpu_types=TYPES,
            limits=True, several=0.4,
        )  # fmt: skip
        asked = replace(made, policy=policy, policy_version=POLICIES[policy].version, options={})
        decision = decode(canonical_bytes(decide_round(asked)), Decision)
        new = redacted(asked)
        assert new.jobs != asked.jobs or policy == "market"
        is_same_under(new, decision, ranks(ids_of_round(new)))
