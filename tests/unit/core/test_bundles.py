"""Test rounds as bundles: canonical bytes, decoding, and redaction."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from evenshare_core.disclosure.bundle import (
    BundleError,
    Naming,
    bundle_schema,
    ids_of,
    make_bundle,
    read_bundle,
)
from evenshare_core.disclosure.own import own_digest, own_excerpts
from evenshare_core.domain.decision import Decision, Preemption, Trade
from evenshare_core.domain.reasons import PreemptionRule
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.domain.values import canonical_bytes
from evenshare_core.fairness.certificate import plain
from evenshare_core.fairness.certify import UNTRIED
from evenshare_core.policies.base import certify_round, decide_round
from tests.unit.core.disclosed_rounds import some_rounds
from tests.unit.verified_rounds import StagedPool, staged_rounds

SCHEMA_FILE = Path(__file__).parents[3] / "docs" / "bundle.schema.json"
PARTS = (b"", b"0", b"9", b"-", b"null", b'"', b"[", b"]", b"{}", b"\xff", b"1e999")
VERSIONS = {"evenshare-core": "0.1.0"}


def naming_of(snapshot: Snapshot) -> Naming:
    """Return names that contain the id, so that tests can search for it."""
    ids = ids_of(snapshot)
    return Naming(*({id_: f"{place}{id_:015x}" for id_ in rows} for place, rows in enumerate(ids)))


def bundled(snapshot: Snapshot, decision: Decision, **rest: Any) -> bytes:
    parts: dict[str, Any] = {
        "pool": "philly",
        "naming": naming_of(snapshot),
        "certificate": plain(certify_round(snapshot, decision)),
        "superseded": [{"item": "grant", "id": row.job, "why": "?"} for row in decision.grants],
        "versions": VERSIONS,
    }
    return make_bundle(snapshot, decision, **parts | rest)


@pytest.fixture(scope="module", params=["ltgf", "evenshare", "market"])
def round_(request: pytest.FixtureRequest) -> tuple[Snapshot, Decision]:
    """Return a round of a pool that has run for a while."""
    return some_rounds(request.param, 3, 6)[-1]


class TestBundle:
    def test_recomputation_gives_same_decision_and_certificate(
        self, round_: tuple[Snapshot, Decision]
    ) -> None:
        read = read_bundle(bundled(*round_))
        assert canonical_bytes(decide_round(read.snapshot)) == canonical_bytes(read.decision)
        assert plain(certify_round(read.snapshot, read.decision)) == read.certificate

    def test_encoding_is_deterministic(self, round_: tuple[Snapshot, Decision]) -> None:
        data = bundled(*round_)
        read = read_bundle(data)
        names = msgspec.structs.astuple(read.names)
        again = make_bundle(
            read.snapshot,
            read.decision,
            pool=read.pool,
            naming=Naming(*(dict(enumerate(rows, 1)) for rows in names)),
            certificate=read.certificate,
            superseded=read.superseded,
            versions=read.versions,
        )
        assert bundled(*round_) == data == again

    def test_names_map_job_numbers_to_ids(self, round_: tuple[Snapshot, Decision]) -> None:
        snapshot, _ = round_
        read = read_bundle(bundled(*round_))
        ids, numbers = [job.id for job in snapshot.jobs], [job.id for job in read.snapshot.jobs]
        named = [int(read.names.jobs[number - 1][1:], 16) for number in numbers]
        assert named == ids
        assert list(numbers) == sorted(numbers)


class TestBundledCertificate:
    def test_keeps_only_error_type_without_message(self, round_: tuple[Snapshot, Decision]) -> None:
        """The message may contain ids, which renaming does not replace."""
        lines: dict[str, Any] = dict(plain(certify_round(*round_)))
        first, *rest = lines["findings"]
        untried = {**first, "why": f"{UNTRIED}KeyError: 31337"}
        failed = {**lines, "failure": "KeyError: 31337", "findings": [untried, *rest]}
        data = bundled(*round_, certificate=failed)
        certificate = msgspec.json.decode(data)["certificate"]
        assert certificate["failure"] == "KeyError"
        assert certificate["findings"][0]["why"] == f"{UNTRIED}KeyError"
        assert b"31337" not in data


class TestOwnExcerpts:
    def test_contain_no_names_of_other_tenants(self, round_: tuple[Snapshot, Decision]) -> None:
        read = read_bundle(bundled(*round_))
        excerpts = own_excerpts(read)
        assert len(excerpts) == len(read.names.tenants) > 1
        for tenant, data in excerpts.items():
            others = set(read.names.tenants) - {read.names.tenants[tenant - 1]}
            assert not any(name.encode() in data for name in others)
            of_others = {row.id for row in read.snapshot.jobs if row.tenant != tenant}
            assert not any(read.names.jobs[job - 1].encode() in data for job in of_others)

    def test_contain_tenants_rows_of_the_round(self, round_: tuple[Snapshot, Decision]) -> None:
        read = read_bundle(bundled(*round_))
        for tenant, data in own_excerpts(read).items():
            rows = msgspec.json.decode(data)["rows"]
            own = [row for row in read.snapshot.leases if row.tenant == tenant]
            assert [row["price_micro"] for row in rows["leases"]] == [r.price_micro for r in own]
            assert {row["tenant"] for row in rows["shares"]} <= {1}

    def test_selected_tenant_gets_same_excerpt(self, round_: tuple[Snapshot, Decision]) -> None:
        read = read_bundle(bundled(*round_))
        excerpts = own_excerpts(read)
        for tenant, data in excerpts.items():
            assert own_excerpts(read, [tenant]) == {tenant: data}
        assert own_excerpts(read, []) == {}

    def test_replace_other_tenants_by_zero(self) -> None:
        """Other tenants occur as beneficiaries, in trades, and in certificates."""
        snapshot, decision = some_rounds("ltgf", 3, 6)[-1]
        one, two, three = (row.id for row in snapshot.tenants[:3])
        mine, theirs = (
            next(row.id for row in snapshot.jobs if row.tenant == tenant) for tenant in (one, two)
        )
        preempted = Preemption(0, mine, one, PreemptionRule.GUARANTEE, theirs, two)
        trade = Trade("A100", 5, one, "K80", 10, two, 2, 2, 2, 0)
        row = {"tenant": one, "other": three, "best_other": 4.25, "held": 1.5}
        lines = {**plain(certify_round(snapshot, decision)), "rows": [row]}
        decision = replace(decision, preemptions=(preempted,), trades=(trade,))
        read = read_bundle(bundled(snapshot, decision, certificate=lines))
        excerpts = {read.names.tenants[n - 1]: rows for n, rows in own_excerpts(read).items()}
        excerpt = msgspec.json.decode(excerpts[naming_of(snapshot).tenants[one]])
        (preemption,), (trade_,) = excerpt["rows"]["preemptions"], excerpt["rows"]["trades"]
        assert (preemption["tenant"], preemption["for_tenant"], preemption["for_job"]) == (1, 0, 0)
        assert (trade_["buyer"], trade_["seller"]) == (1, 0)
        assert excerpt["certificate"]["rows"] == [{"tenant": 1, "held": 1.5}]
        assert len(excerpt["names"]["tenants"]) == 1

    def test_digest_depends_on_salt(self) -> None:
        assert own_digest(b"a", b"{}") != own_digest(b"b", b"{}")
        assert own_digest(b"a", b"b") == own_digest(b"", b"ab")


class TestDamagedBundle:
    def test_rejects_more_gpus_than_pool_limit(self) -> None:
        """A verifier that places that many GPUs would run out of memory."""
        document = json.loads(StagedPool(staged_rounds(1)).bundles[1])
        document["snapshot"]["nodes"][0]["gpus"] = 10**9
        with pytest.raises(BundleError, match=r"snapshot\.nodes: has 1,000,000,004 GPUs"):
            read_bundle(json.dumps(document).encode())

    """What is read and is none."""

    @pytest.mark.parametrize(
        ("old", "new", "field"),
        [
            (b"{", b"", ""),
            (b'"schema":1', b'"schema":2', "schema"),
            (b'"gpus":', b'"gpux":', "snapshot.nodes[0]"),
            (b'"round":', b'"round":9', "round"),
            (b'"day":"1970', b'"day":"1971', "day"),
            (b'"tenants":["', b'"tenants":["x","', "names.tenants"),
            (b'"policy":"', b'"policy":"x', "snapshot.policy"),
            (b'"memory":{', b'"memory":{"x":1,', "snapshot.memory"),
            (b'"grants":[', b'"grants":[{},', "decision.grants[0]"),
            (b'"item":"grant"', b'"item":"loan"', "superseded[0].item"),
            (b'"checked":', b'"chequed":', "certificate"),
        ],
    )
    def test_error_names_damaged_field(
        self, round_: tuple[Snapshot, Decision], old: bytes, new: bytes, field: str
    ) -> None:
        damaged = bundled(*round_).replace(old, new, 1)
        with pytest.raises(BundleError) as refused:
            read_bundle(damaged)
        assert refused.value.field == field
        assert refused.value.reason

    @given(
        policy=st.sampled_from(["gandiva_fair", "market"]),
        part=st.floats(0, 1, exclude_max=True),
        length=st.sampled_from([1, 2, 9]),
        other=st.sampled_from(PARTS),
    )
    @settings(database=None)
    def test_random_damage_is_read_or_raises_bundle_error(
        self, policy: str, part: float, length: int, other: bytes
    ) -> None:
        """A part of the bundle is replaced by any other JSON value or text."""
        whole = bundled(*some_rounds(policy, 5, 5)[-1])
        place = int(part * len(whole))
        with suppress(BundleError):
            read = read_bundle(whole[:place] + other + whole[place + length :])
            assert own_excerpts(read)

    def test_rejects_policy_memory_of_wrong_shape(self) -> None:
        snapshot, decision = some_rounds("gandiva_fair", 5, 5)[-1]
        document = msgspec.json.decode(bundled(snapshot, decision))
        memories: tuple[dict[str, Any], ...] = (
            {"jobs": 5},
            {"jobs": [[]]},
            {"rated": {"A100": None}},
            {"trades": ["ab"]},
        )
        for memory in memories:
            document["snapshot"]["memory"] = memory
            with pytest.raises(BundleError) as refused:
                read_bundle(msgspec.json.encode(document))
            assert refused.value.field == "snapshot.memory"

    def test_rejects_ids_without_names(self, round_: tuple[Snapshot, Decision]) -> None:
        naming = naming_of(round_[0])._replace(jobs={})
        with pytest.raises(BundleError) as refused:
            bundled(*round_, naming=naming)
        assert refused.value.field == "names"


class TestBundleSchema:
    def test_matches_published_file(self) -> None:
        """To update the file, write the result of `bundle_schema()` to it.

        A new field needs no new schema: older clients then do not prove the round.
        """
        published = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
        assert published == bundle_schema()

    def test_accepts_bundle_and_rejects_wrong_fields(
        self, round_: tuple[Snapshot, Decision]
    ) -> None:
        document = json.loads(bundled(*round_))
        validator = jsonschema.Draft202012Validator(bundle_schema())
        assert list(validator.iter_errors(document)) == []
        document["snapshot"]["jobs"][0]["gpus"] = "two"
        document["snapshot"]["leases"].append({"id": -1})
        assert {tuple(error.path)[:2] for error in validator.iter_errors(document)} == {
            ("snapshot", "jobs"),
            ("snapshot", "leases"),
        }
