"""Rounds of a small pool with their bundles, their log and its signed heads, as in a portal.

They are made from a portal's parts: the simulator's rounds, the disclosure, the log. The REST
answers are given here too. Tests change a round, a record or a key, and seal again.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from evenshare_core.chain.checkpoints import Checkpoint, SigningKey, make_vkey, note_text, sign_note
from evenshare_core.chain.merkle import (
    Place,
    completed,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    root,
)
from evenshare_core.chain.records import RoundRecord, read_record, record_bytes, record_hash
from evenshare_core.disclosure.bundle import Naming, ids_of, make_bundle, read_bundle
from evenshare_core.disclosure.own import NOT_RECOMPUTABLE, own_digest, own_excerpts
from evenshare_core.disclosure.pseudonyms import (
    day_of,
    job_name,
    lease_name,
    own_salt,
    profile_name,
    tenant_key,
    tenant_name,
)
from evenshare_core.domain.cluster import Node
from evenshare_core.domain.decision import Decision, Grant
from evenshare_core.domain.entitlements import Entitlement
from evenshare_core.domain.instants import from_us
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.domain.values import sha256_hex
from evenshare_core.fairness.certificate import plain
from evenshare_core.policies.base import certify_round, decide_round
from evenshare_core.simulation.state import Rules, SimulationState
from evenshare_core.simulation.workloads import Cluster, SimJob
from evenshare_core.units import SECOND_US
from evenshare_core.verification.following import breaks

POOL, LOG = "lab", "evenshare/test/rounds/lab"
ADA, BOB = "ada", "bob"
TENANTS = {1: ADA, 2: BOB, 3: "cyd"}
BEGIN_US = 1_900_000_000 * SECOND_US
ROUND_US = 10 * SECOND_US
VERSIONS = {"evenshare-core": "0.1.0"}
FAST, SLOW = "fast", "slow"


class StagedRound(msgspec.Struct):
    """A decided round, with the ids of a database."""

    snapshot: Snapshot
    decision: Decision
    certificate: dict[str, Any] | None
    superseded: list[dict[str, Any]] = []


def key_of(name: str) -> SigningKey:
    """Return a signing key of the log, different for each name."""
    return SigningKey(LOG, hashlib.sha256(name.encode()).digest())


def vkey_of(key: SigningKey) -> str:
    return make_vkey(key.name, key.public)


def staged_rounds(
    count: int = 8,
    *,
    policy: str = "ltgf",
    options: Mapping[str, Any] | None = None,
    sizes: Sequence[int] = (1, 2),
    begin_us: int = BEGIN_US,
    left_out: Callable[[Grant], str | None] = lambda _: None,
) -> list[StagedRound]:
    """Return consecutive rounds of three tenants that compete for eight GPUs of two types.

    `sizes`: the GPUs of the jobs, in turn. `left_out` returns the reason why a grant is not
    applied, or None.
    """
    nodes = (Node(1, FAST, 4), Node(2, SLOW, 4))
    quotas = tuple(
        Entitlement(tenant, gpu_type, gpus)
        for tenant, gpus in ((1, 2), (2, 1), (3, 1))
        for gpu_type in (FAST, SLOW)
    )
    profiles = {
        tenant: Profile(tenant, tenant, ((FAST, 1000 + 500 * tenant), (SLOW, 1000)))
        for tenant in TENANTS
    }
    jobs = tuple(
        SimJob(
            id=10 + number,
            tenant=1 + number % 3,
            gpus=sizes[number % len(sizes)],
            submitted_us=begin_us + number * 7 * SECOND_US,
            duration_us=(25 + 5 * number) * SECOND_US,
            profile=1 + number % 3,
        )
        for number in range(12)
    )
    rules = Rules(policy, dict(options or {}), ROUND_US, lease_us=20 * SECOND_US)
    state = SimulationState(
        Cluster(nodes, quotas, profiles=profiles), jobs, rules, start_us=begin_us
    )
    rounds = []
    for number in range(count):
        state.advance(begin_us + number * ROUND_US)
        snapshot = state.snapshot()
        row = decided(snapshot)
        reasons = [(grant, left_out(grant)) for grant in row.decision.grants]
        row.superseded = [
            {"item": "grant", "id": grant.job, "why": why}
            for grant, why in reasons
            if why is not None
        ]
        rounds.append(row)
        kept = tuple(grant for grant, why in reasons if why is None)
        state.apply(msgspec.structs.replace(row.decision, grants=kept))
    return rounds


def decided(snapshot: Snapshot) -> StagedRound:
    decision = decide_round(snapshot)
    return StagedRound(snapshot, decision, plain(certify_round(snapshot, decision)))


def uid_of(job: int) -> uuid.UUID:
    return uuid.UUID(int=job << 96)


@dataclass
class StagedPool:
    """A pool whose rounds are sealed into a log; `reader`: the requesting tenant."""

    rounds: list[StagedRound] = field(default_factory=staged_rounds)
    reader: str = ADA
    keys: list[SigningKey] = field(default_factory=lambda: [key_of("first")])
    bundles: dict[int, bytes] = field(default_factory=dict)
    records: list[bytes] = field(default_factory=list)
    visibility: str = "pseudonyms"

    def __post_init__(self) -> None:
        self.seal()

    def seal(
        self, tamper: Callable[[int, bytes], bytes] = lambda _, data: data, *, unread: bool = False
    ) -> None:
        """Seal all rounds again. `tamper` changes each bundle before its commitment.

        `unread`: the changed bundle cannot be read here, so the original one is read instead.
        """
        self.records, self.bundles = [], {}
        before = None
        for row in self.rounds:
            honest = self._bundle(row)
            data = tamper(row.snapshot.number, honest)
            here = read_bundle(honest if unread else data)
            excerpts = own_excerpts(here)
            record = RoundRecord(
                schema=1,
                log=LOG,
                round=row.snapshot.number,
                at_us=row.snapshot.at_us,
                previous=record_hash(self.records[-1]) if self.records else "",
                bundle=sha256_hex(data),
                own=tuple(
                    sorted(
                        own_digest(self._salt(row, tenant), excerpts[number])
                        for number, tenant in enumerate(ids_of(row.snapshot).tenants, start=1)
                    )
                ),
                breaks=() if before is None else breaks(before, here),
            )
            self.records.append(record_bytes(record))
            self.bundles[record.round] = data
            before = here

    def _bundle(self, row: StagedRound) -> bytes:
        return make_bundle(
            row.snapshot,
            row.decision,
            pool=POOL,
            naming=self._naming(row.snapshot),
            certificate=row.certificate,
            superseded=row.superseded,
            versions=VERSIONS,
        )

    def _naming(self, snapshot: Snapshot) -> Naming:
        ids, day = ids_of(snapshot), day_of(snapshot.at_us)
        owners = {job: 1 + (job - 10) % 3 for job in ids.jobs}
        leases = {row.id: row.tenant for row in snapshot.leases}
        profiles = {row.id: row.tenant for row in snapshot.profiles}
        return Naming(
            tenants={id_: tenant_name(self.tenant_key(day, id_)) for id_ in ids.tenants},
            jobs={
                job: job_name(self.tenant_key(day, owners[job]), uid_of(job).hex)
                for job in ids.jobs
            },
            leases={
                id_: lease_name(self.tenant_key(day, leases.get(id_, 0)), id_) for id_ in ids.leases
            },
            profiles={
                id_: profile_name(self.tenant_key(day, profiles.get(id_, id_)), f"p{id_}")
                for id_ in ids.profiles
            },
        )

    def tenant_key(self, day: str, tenant: int) -> bytes:
        return tenant_key(hashlib.sha256(day.encode()).digest(), tenant)

    def _salt(self, row: StagedRound, tenant: int) -> bytes:
        key = self.tenant_key(day_of(row.snapshot.at_us), tenant)
        return own_salt(key, POOL, row.snapshot.number)

    # REST answers.

    @property
    def size(self) -> int:
        return len(self.records)

    def note(self, size: int | None = None) -> str:
        size = self.size if size is None else size
        checkpoint = Checkpoint(LOG, size, root(size, self._nodes))
        return sign_note(note_text(checkpoint), self.keys)

    def _nodes(self, places: Any) -> list[bytes]:
        leaves = [leaf_hash(data) for data in self.records]
        nodes: Mapping[Place, bytes] = completed(0, leaves, lambda _: ())
        return [nodes[place] for place in places]

    def answer(self, words: list[str], query: dict[str, str]) -> tuple[int, Any]:
        """Return a portal's answer to `GET /chain/lab/...` and `GET /rounds/lab/N/bundle`."""
        if words[0] == "rounds":
            return self._bundle_answer(int(words[2]))
        numbers = {name: int(text) for name, text in query.items() if name != "day"}
        answers: dict[tuple[str, ...], Callable[[], tuple[int, Any]]] = {
            (): lambda: (200, self.chain()),
            ("records",): lambda: self._records(**numbers),
            ("inclusion",): lambda: self._inclusion(numbers["round"], numbers["size"]),
            ("consistency",): lambda: self._consistency(**numbers),
            ("names",): lambda: (200, self._names(query["day"])),
        }
        return answers[tuple(words[2:])]()

    def _records(self, first: int, last: int) -> tuple[int, Any]:
        rows = [row for row in self.record_rows() if first <= row[1].round <= last]
        results = [{"index": index, "record": data.decode()} for index, _, data in rows]
        return 200, {"results": results, "next": None}

    def _consistency(self, first: int, second: int) -> tuple[int, Any]:
        if not 0 < first <= second <= self.size:
            return 422, {"title": "No such size", "status": 422}
        path = consistency_proof(first, second, self._nodes)
        return 200, {"path": [step.hex() for step in path]}

    def chain(self) -> dict[str, Any]:
        newest = read_record(self.records[-1]).round
        keys = [
            {"vkey": vkey_of(key), "since": "2026-01-01T00:00:00Z", "until": None}
            for key in self.keys
        ]
        return {
            "log": LOG, "checkpoint": self.note(), "size": self.size, "round": newest, "keys": keys,
        }  # fmt: skip

    def record_rows(self) -> list[tuple[int, RoundRecord, bytes]]:
        return [(i, read_record(data), data) for i, data in enumerate(self.records)]

    def _inclusion(self, number: int, size: int) -> tuple[int, Any]:
        index = next(i for i, record, _ in self.record_rows() if record.round == number)
        path = inclusion_proof(index, size, self._nodes)
        return 200, {"index": index, "size": size, "path": [step.hex() for step in path]}

    def _names(self, day: str) -> dict[str, Any]:
        id_ = next(id_ for id_, slug in TENANTS.items() if slug == self.reader)
        key = self.tenant_key(day, id_)
        row = {"tenant": self.reader, "key": key.hex(), "name": tenant_name(key)}
        return {"pool": POOL, "day": day, "tenants": [row], "names": {row["name"]: self.reader}}

    def _bundle_answer(self, number: int) -> tuple[int, Any]:
        data = self.bundles.get(number)
        if data is None:
            return 404, {"title": "No longer kept", "status": 404}
        if self.visibility != "own":
            return 200, data
        id_ = next(id_ for id_, slug in TENANTS.items() if slug == self.reader)
        row = next(row for row in self.rounds if row.snapshot.number == number)
        number_of = ids_of(row.snapshot).tenants.index(id_) + 1
        record = next(record for _, record, _ in self.record_rows() if record.round == number)
        excerpt = json.loads(own_excerpts(read_bundle(data))[number_of])
        return 200, {
            "schema": 1,
            "form": "own",
            "pool": POOL,
            "round": number,
            "record": json.loads(record_bytes(record)),
            "own": [{"tenant": self.reader, "excerpt": excerpt}],
            "not_recomputable": NOT_RECOMPUTABLE,
        }

    def jobs(self) -> list[dict[str, Any]]:
        """Return the reader's jobs submitted until the last round, newest first."""
        id_ = next(id_ for id_, slug in TENANTS.items() if slug == self.reader)
        jobs = {job.id: job for row in self.rounds for job in row.snapshot.jobs}
        last = {job.id: row.snapshot.at_us for row in self.rounds for job in row.snapshot.jobs}
        end_us = self.rounds[-1].snapshot.at_us
        return [
            {
                "id": str(uid_of(job.id)),
                "tenant": self.reader,
                "pool": POOL,
                "state": "running",
                "gpus": job.gpus,
                "submitted_at": _text(job.submitted_us),
                "profile": f"p{job.profile}",
                "ended_at": None if last[job.id] == end_us else _text(last[job.id] + 1),
            }
            for job in sorted(jobs.values(), key=lambda job: -job.id)
            if job.tenant == id_
        ]

    def files(self, first: int = 1, last: int | None = None, pinned: int = 0) -> dict[str, bytes]:
        """Return the files of a download of these rounds; `pinned`: the size of the pin."""
        last = last or read_record(self.records[-1]).round
        names = {
            "chain.json": self.chain(),
            "records.json": self.answer(
                ["chain", POOL, "records"], {"first": str(max(1, first - 1)), "last": str(last)}
            )[1]["results"],
            "inclusion.json": self._inclusion(last, self.size)[1],
            "jobs.json": {"jobs": self.jobs(), "complete": True},
        }
        days = {day_of(record.at_us) for _, record, _ in self.record_rows()}
        names |= {f"names/{day}.json": self._names(day) for day in days}
        if 0 < pinned < self.size:
            path = [step.hex() for step in consistency_proof(pinned, self.size, self._nodes)]
            names["consistency.json"] = {"first": pinned, "second": self.size, "path": path}
        files = {name: json.dumps(value).encode() for name, value in names.items()}
        for number in range(max(1, first - 1), last + 1):
            status, answer = self._bundle_answer(number)
            if status == 200:
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                files[f"bundles/{number}.json"] = data
        return files


def _text(at_us: int) -> str:
    return from_us(at_us).isoformat().replace("+00:00", "Z")
