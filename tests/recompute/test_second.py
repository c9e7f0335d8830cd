"""The second implementation of ltgf's round, written from docs/recompute, agrees with the core.

It is compared on the demo's pools under `ltgf`, on the golden cases of the paper, and on random
pools. For the demo's other policies, the test recomputes only the parts that are common to all
policies.
"""

from __future__ import annotations

import ast
import hashlib
import hmac
import json
import re
import sys
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from evenshare_core.chain import merkle
from evenshare_core.chain.records import RoundRecord, record_bytes
from evenshare_core.disclosure import pseudonyms
from evenshare_core.disclosure.bundle import Naming, ids_of, make_bundle
from evenshare_core.domain.backoff import Backoff
from evenshare_core.domain.cluster import Node
from evenshare_core.domain.decision import Decision, End, Grant, Key, Renew, Share, Skip
from evenshare_core.domain.entitlements import Entitlement, Tenant
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.reasons import Reason
from evenshare_core.domain.snapshot import (
    Change,
    ClaimService,
    ClassService,
    JobService,
    PoolPrice,
    Snapshot,
    Surcharge,
)
from evenshare_core.domain.values import Value
from evenshare_core.policies.base import decide_round
from evenshare_core.policies.ltgf.options import LtgfOptions
from tests.papers import pool_loop, test_ltgf
from tests.papers.mixed_pool import mixed_cluster, mixed_workload
from tests.papers.mixed_pool import rounds as mixed_rounds
from tests.papers.test_ltgf_properties import rounds
from tests.patience import some
from tests.recompute.pools import Pool, mixed_pool, odd_rounds, philly_pool
from tests.recompute.posted import follow, recompute
from tests.recompute.second import DEFAULTS
from tests.unit.core.disclosed_rounds import cases, some_rounds

HERE = Path(__file__).parent
PAGES = sorted((HERE.parents[1] / "docs" / "recompute").glob("*.md"))
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
LINES = 400
# The tables of a decision; under ltgf, all other tables are empty.
TABLES = (
    "grants", "renewals", "ends", "skips", "service", "memory", "shares", "prices", "surcharges",
)  # fmt: skip
HOURS = 3


def bundle(snapshot: Snapshot, decision: Decision) -> dict[str, Any]:
    """Return the bundle of a round that a tenant downloads."""
    ids = ids_of(snapshot)
    names = Naming(*({one: f"{one:016x}" for one in rows} for rows in ids))
    data = make_bundle(
        snapshot, decision, pool="a", naming=names, certificate=None, superseded=(), versions={}
    )
    read: dict[str, Any] = json.loads(data)
    return read


def differences(snapshot: Snapshot, decision: Decision) -> list[str]:
    """Return the tables in which the two implementations differ."""
    disclosed = bundle(snapshot, decision)
    first = disclosed["decision"]
    second = json.loads(recompute(json.dumps(disclosed["snapshot"])))
    assert set(second) == set(TABLES)
    empty = [name for name in first if name not in TABLES and name not in ("at_us", "solve")]
    assert not any(first[name] for name in empty)
    return [name for name in TABLES if first[name] != second[name]]


class TestSourceFiles:
    @pytest.mark.parametrize("name", ["second.py", "places.py", "posted.py", "charges.py"])
    def test_import_only_standard_library(self, name: str) -> None:
        tree = ast.parse((HERE / name).read_text(encoding="utf-8"))
        found = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add("." * node.level + (node.module or ""))
        own = [".second", ".places"] if name == "posted.py" else []
        allowed = {*sys.stdlib_module_names, *own}
        assert {one.partition(".")[0] or one for one in found} <= allowed

    def test_round_has_at_most_400_lines(self) -> None:
        assert len((HERE / "second.py").read_text(encoding="utf-8").splitlines()) <= LINES


class TestDocument:
    """The document has the core's names and defaults; other classes test what they mean."""

    def words(self) -> set[str]:
        return set(re.findall(r"`(\w+)`", TEXT))

    def test_lists_every_option_and_default(self) -> None:
        table = TEXT.partition("| option | default |")[2].partition("\n\n")[0]
        defaults = msgspec.to_builtins(LtgfOptions())
        assert defaults == DEFAULTS
        for name, default in defaults.items():
            row = next(line for line in table.splitlines() if f"`{name}`" in line)
            told_default = (
                row.split("|")[2].replace("`", "").split(";")[0].partition(":")[0].strip()
            )
            assert told_default == str(default).lower()

    @pytest.mark.parametrize(
        "row",
        [Node, Tenant, Entitlement, Lease, PoolPrice, Surcharge, Backoff, Change, ClaimService,
         ClassService, JobService, Grant, Renew, End, Skip, Share, Key],
    )  # fmt: skip
    def test_lists_every_table_field(self, row: type[Value]) -> None:
        assert set(row.__struct_fields__) <= self.words()

    def test_lists_every_reason_of_ltgf(self) -> None:
        """Only policies with more inputs, or with promised starts, give the other reasons."""
        others = {Reason.PRICE_ABOVE_VALUE, Reason.PLANNED_LATER, Reason.NEXT_BATCH,
                  Reason.PROMISED, Reason.CPUS_OR_MEMORY, Reason.QUARANTINED}  # fmt: skip
        assert {reason.value for reason in set(Reason) - others} <= self.words()


class TestNamesAndRecords:
    """The document's formulas, computed without the code that they describe."""

    def test_pseudonyms_match_formula(self) -> None:
        def keyed(key: bytes, text: str) -> bytes:
            return hmac.new(key, text.encode(), hashlib.sha256).digest()

        key = keyed(bytes(range(32)), "tenant:17")
        assert pseudonyms.tenant_key(bytes(range(32)), 17) == key
        texts = {"tenant": pseudonyms.tenant_name(key), "lease:5": pseudonyms.lease_name(key, 5),
                 "job:0f": pseudonyms.job_name(key, "0f"),
                 "profile:vae": pseudonyms.profile_name(key, "vae")}  # fmt: skip
        assert {text: keyed(key, text)[:8].hex() for text in texts} == texts
        assert pseudonyms.own_salt(key, "philly", 9) == keyed(key, "own:philly:9")

    def test_records_and_hashes_match_formula(self) -> None:
        digest = hashlib.sha256(b"a bundle").hexdigest()
        record = RoundRecord(1, "evenshare/here/rounds/philly", 9, 5, "", digest, (digest,))
        fields = {
            "schema": 1, "log": record.log, "round": 9, "at_us": 5, "previous": "",
            "bundle": digest, "own": [digest], "breaks": [], "damage": "",
        }  # fmt: skip
        data = json.dumps(fields, separators=(",", ":")).encode()
        assert record_bytes(record) == data
        leaf = hashlib.sha256(b"\x00" + data).digest()
        assert merkle.leaf_hash(data) == leaf
        assert merkle.node_hash(leaf, leaf) == hashlib.sha256(b"\x01" + leaf + leaf).digest()


@pytest.fixture(scope="module")
def philly() -> Pool:
    return philly_pool()


@pytest.fixture(scope="module")
def mixed() -> Pool:
    return mixed_pool()


class TestDemoPools:
    """Recompute the first three hours of pool time, with the demo's traces, nodes and quotas."""

    @pytest.mark.parametrize("name", ["philly", "mixed"])
    @pytest.mark.parametrize("surcharge", [False, True], ids=["", "surcharges"])
    def test_every_ltgf_round_agrees(
        self, name: str, request: pytest.FixtureRequest, *, surcharge: bool
    ) -> None:
        pool: Pool = request.getfixturevalue(name)
        seen: Counter[str] = Counter()
        for snapshot, decision in pool.with_surcharges(surcharge).rounds(
            HOURS * 3600 // pool.round_s
        ):
            assert differences(snapshot, decision) == [], snapshot.number
            seen.update(["grant"] * len(decision.grants), renewal=len(decision.renewals))
            seen.update(row.reason.value for row in decision.skips)
            seen["borrowed"] += sum(row.borrowed for row in decision.grants)
        assert seen["grant"] > 40, seen
        assert seen["renewal"] > 30, seen
        assert seen["borrowed"] > 5, seen

    @pytest.mark.parametrize(("name", "policy"), [("philly", "evenshare"), ("mixed", "oef")])
    def test_rounds_follow_from_picks_of_other_policies(
        self, name: str, policy: str, request: pytest.FixtureRequest
    ) -> None:
        pool: Pool = request.getfixturevalue(name)
        terms = 0
        for snapshot, decision in pool.rounds(3600 * HOURS // pool.round_s, policy):
            assert not_followed(snapshot, decision) == [], snapshot.number
            terms += len(decision.grants) + len(decision.renewals)
        assert terms > 100


def not_followed(snapshot: Snapshot, decision: Decision) -> list[str]:
    """Return the parts of a round that differ from what the common rules compute from its picks."""
    disclosed = bundle(snapshot, decision)
    first = disclosed["decision"]
    if snapshot.policy == "market":  # the market sets the base rate and theta of the next prices
        disclosed["snapshot"]["surcharges"] = []
        for row, price in zip(disclosed["snapshot"]["prices"], first["prices"], strict=True):
            row |= {"base_micro": price["base_micro"], "theta_milli": price["theta_milli"]}
    second = json.loads(follow(json.dumps(disclosed["snapshot"]), json.dumps(first)))
    fixed = ("own", "borrowed", "price_micro")
    first["terms"] = {
        row["job"]: {key: row[key] for key in fixed} for row in first["grants"] + first["renewals"]
    }
    first["back_offs"] = [row for row in first["skips"] if row["reason"] == "backing_off"]
    held = {"not_before"}
    first["held_jobs"] = [
        row for row in first["skips"] if row["reason"] in held or row["reason"].startswith("held_")
    ]
    second["terms"] = dict(second["terms"])
    return [name for name in second if first[name] != second[name]]


class TestEveryPolicy:
    @pytest.mark.parametrize(("policy", "options"), cases(), ids=str)
    def test_rounds_follow_common_chapters(self, policy: str, options: dict[str, Any]) -> None:
        for seed in (1, 2):
            for snapshot, decision in some_rounds(policy, seed, 5, options):
                assert not_followed(snapshot, decision) == [], (seed, snapshot.number)

    def test_counts_traded_quotas(self) -> None:
        jobs, trades = mixed_workload(1).jobs, 0
        for snapshot, decision, _ in mixed_rounds(
            mixed_cluster(), jobs, 20, "gandiva_fair", round_min=10, lease_min=10
        ):
            assert not_followed(snapshot, decision) == [], snapshot.number
            trades += len(decision.swaps)
        assert trades > 50

    @pytest.mark.parametrize("options", [{}, {"reserve_after_leases": 1}, {"deadline_bonus": 1.0}])
    def test_ltgf_agrees_with_ids_of_any_length(self, options: dict[str, Any]) -> None:
        for seed in range(3, 9):
            for snapshot, decision in some_rounds("ltgf", seed, 8, options):
                assert differences(snapshot, decision) == [], (seed, snapshot.number)


def checked(snapshot: Snapshot) -> Decision:
    """Run `decide_round`, and also the second implementation if the policy is ltgf."""
    decision = decide_round(snapshot)
    if snapshot.policy == "ltgf":
        assert differences(snapshot, decision) == []
        COMPARED["rounds"] += 1
    return decision


COMPARED: Counter[str] = Counter()


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Compare each round that the imported tests of the paper decide."""
    before = COMPARED["rounds"]
    for module in (test_ltgf, pool_loop):
        monkeypatch.setattr(module, "decide_round", checked)
    yield
    assert COMPARED["rounds"] > before


@pytest.mark.usefixtures("compared")
class TestFigure6(test_ltgf.TestGoldenCase1):
    """The rounds of the paper's golden case, figure 6."""


@pytest.mark.usefixtures("compared")
class TestTwoPhases(test_ltgf.TestTwoPhases):
    """Rounds that first choose the tenant, then the job."""


@pytest.mark.usefixtures("compared")
class TestUndefinedRho(test_ltgf.TestUndefinedRho):
    """Rounds before any tenant deserved GPU-time."""


@pytest.mark.usefixtures("compared")
class TestJobSelection(test_ltgf.TestJobSelection):
    """Rounds with bonuses."""


@pytest.mark.usefixtures("compared")
class TestRenewals(test_ltgf.TestRenewal):
    """Renewals and protected leases."""


class TestReservations:
    @pytest.mark.parametrize("waited_us", [0, 1])
    def test_paper_cases_agree(self, waited_us: int, compared: None) -> None:
        test_ltgf.TestBigGangReservation().test_reserves_after_more_than_k_leases(
            waited_us, held_back=bool(waited_us)
        )
        test_ltgf.TestBigGangReservation().test_passes_to_next_gang_while_limit_refuses_first(
            "ltgf"
        )


class TestRandomPools:
    @given(rounds())
    def test_rounds_agree(self, snapshot: Snapshot) -> None:
        assert differences(snapshot, decide_round(snapshot)) == []

    @given(st.integers(0, 10**6))
    @settings(max_examples=some())
    def test_unusual_rounds_agree(self, seed: int) -> None:
        for snapshot in odd_rounds(seed, 12):
            assert differences(snapshot, decide_round(snapshot)) == [], (seed, snapshot.number)

    def test_cover_every_reason_note_and_placement(self) -> None:
        """Every reason, note and kind of placement occurs, so the comparison covers all of them."""
        seen: Counter[str] = Counter()
        for seed in (4, 20, 23, 33, 42, 109, 118):
            for snapshot in odd_rounds(seed, 24):
                decision = decide_round(snapshot)
                assert differences(snapshot, decision) == [], (seed, snapshot.number)
                seen.update(row.reason.value for row in decision.skips)
                seen.update(row.reason.value for row in decision.ends)
                seen.update(row.key.note for row in decision.grants)
                seen["several nodes"] += any(len(row.placement) > 1 for row in decision.grants)
                seen["withdrawn"] += any("withdrawn" in row.numbers for row in decision.skips)
                seen["several types"] += any("other_types" in row.numbers for row in decision.skips)
                seen["reserved memory"] += "reserved" in decision.memory
                seen["surcharge"] += any(row.surcharge_micro for row in decision.surcharges)
                seen["marks"] += any(len(row.marks) > 1 for row in decision.service.claims)
        wanted = {
            "lease_turn", "tenant_passed_over", "no_free_gpus", "fragmented", "reserved_for_gang",
            "reserved_quota", "quota_limit", "price_above_max", "budget", "too_large",
            "backing_off", "held_by_tenant", "not_before", "not_renewed", "drained", "other_type",
            "reserved", "several nodes", "withdrawn", "several types", "reserved memory",
            "surcharge", "marks",
        }  # fmt: skip
        assert not {name for name in wanted if not seen[name]}, seen


class TestDifference:
    """If values of a decision are changed, they differ from the recomputed values."""

    def snapshot(self) -> Snapshot:
        return next(islice(odd_rounds(3, 12), 8, None))

    def test_detects_altered_sum(self) -> None:
        snapshot = self.snapshot()
        decision = decide_round(snapshot)
        claims = [
            replace(row, alloc_gpu_us=row.alloc_gpu_us + 1) for row in snapshot.service.claims
        ]
        bent = replace(snapshot, service=replace(snapshot.service, claims=tuple(claims)))
        assert differences(snapshot, decision) == []
        assert {"service", "shares"} <= set(differences(bent, decision))

    def test_detects_altered_price_and_skip(self) -> None:
        snapshot = self.snapshot()
        decision = decide_round(snapshot)
        prices = (replace(decision.prices[0], price_micro=1), *decision.prices[1:])
        assert differences(snapshot, replace(decision, prices=prices)) == ["prices"]
        assert differences(snapshot, replace(decision, skips=decision.skips[1:])) == ["skips"]
