"""A tenant's own rows of a round, for pools in which each tenant sees only its own rows.

An excerpt of the bundle contains the rows of one tenant, with the parts of the decision that
concern it. It also contains the shared data: the time, lengths, the policy, GPUs by type, posted
prices and versions. It contains neither rows of others nor the policy's memory. Ids are renumbered
from 1, so that no number reveals how many other tenants or jobs the round has. An id of another
tenant (a beneficiary, or the other side of a trade) is 0.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from evenshare_core.disclosure.bundle import Disclosed, Names
from evenshare_core.disclosure.forms import form_of
from evenshare_core.disclosure.renaming import NUMBERED, collected, plan_of, ranks, renamed
from evenshare_core.disclosure.shapes import SUPERSEDED, certificate_shape, renamed_superseded
from evenshare_core.domain.backoff import Backoff
from evenshare_core.domain.cluster import capacity_by_type
from evenshare_core.domain.deadlines import Deadline, DeadlineAnswer
from evenshare_core.domain.decision import (
    End,
    Grant,
    Ideal,
    Plan,
    Preemption,
    Renew,
    Share,
    Skip,
    Swap,
    TermLength,
    Trade,
)
from evenshare_core.domain.entitlements import Entitlement, Tenant
from evenshare_core.domain.estimates import JobEstimate
from evenshare_core.domain.held_jobs import HeldJob
from evenshare_core.domain.ids import IdKind, JobId, shape_of
from evenshare_core.domain.job_ranks import JobRank
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.leases import Lease
from evenshare_core.domain.measured_speeds import MeasuredProfile
from evenshare_core.domain.profiles import Profile
from evenshare_core.domain.snapshot import (
    Change,
    ClaimService,
    ClassService,
    JobResources,
    JobService,
)
from evenshare_core.domain.utilities import Utility
from evenshare_core.domain.values import Value

SCHEMA = 1
NOT_RECOMPUTABLE = (
    "From your own rows you can check your own and borrowed GPUs, and each charge at the posted"
    " price. The allocation itself and the posted prices cannot be recomputed from them: both"
    " depend on the rows of other tenants."
)


class OwnRows(Value, frozen=True, array_like=True):
    """The rows of one tenant: first those of the snapshot, then those of the decision.

    `claims`, `classes` and `job_sums` are GPU-time sums before the round. The fields that begin
    with `next_` are the sums after it.
    """

    newest: ClassVar[tuple[str, ...]] = ("holds", "ranks")

    tenants: tuple[Tenant, ...] = ()
    entitlements: tuple[Entitlement, ...] = ()
    jobs: tuple[Job, ...] = ()
    leases: tuple[Lease, ...] = ()
    changes: tuple[Change, ...] = ()
    profiles: tuple[Profile, ...] = ()
    backoffs: tuple[Backoff, ...] = ()
    job_resources: JobResources = ()
    utilities: tuple[Utility, ...] = ()
    deadlines: tuple[Deadline, ...] = ()
    estimates: tuple[JobEstimate, ...] = ()
    profilers: tuple[JobId, ...] = ()
    measured: tuple[MeasuredProfile, ...] = ()
    claims: tuple[ClaimService, ...] = ()
    classes: tuple[ClassService, ...] = ()
    job_sums: tuple[JobService, ...] = ()
    grants: tuple[Grant, ...] = ()
    renewals: tuple[Renew, ...] = ()
    ends: tuple[End, ...] = ()
    preemptions: tuple[Preemption, ...] = ()
    lengths: tuple[TermLength, ...] = ()
    skips: tuple[Skip, ...] = ()
    shares: tuple[Share, ...] = ()
    ideals: tuple[Ideal, ...] = ()
    trades: tuple[Trade, ...] = ()
    swaps: tuple[Swap, ...] = ()
    plans: tuple[Plan, ...] = ()
    answers: tuple[DeadlineAnswer, ...] = ()
    next_claims: tuple[ClaimService, ...] = ()
    next_classes: tuple[ClassService, ...] = ()
    next_job_sums: tuple[JobService, ...] = ()
    holds: tuple[HeldJob, ...] = ()
    ranks: tuple[JobRank, ...] = ()


_encoder = msgspec.json.Encoder(order="deterministic")
_form = form_of(OwnRows)
_plan = plan_of(shape_of(OwnRows))
_lines_plan = plan_of(certificate_shape())
_Owners = Callable[[Any], Iterable[int]]


def own_excerpts(disclosed: Disclosed, tenants: Iterable[int] | None = None) -> dict[int, bytes]:
    """Return the canonical JSON of each tenant's rows, with the shared data, by tenant number.

    `tenants` are the requested numbers, from 1; None requests all tenants of the round.
    """
    if tenants is None:
        tenants = range(1, len(disclosed.names.tenants) + 1)
    shared = _shared(disclosed)
    tables, lines, superseded = _tables(disclosed), _lines(disclosed), _superseded(disclosed)
    excerpts = {}
    for tenant in tenants:
        data = msgspec.to_builtins(_rows_of(tenant, tables))
        own = collected(data, _plan)
        ids = ranks(own)
        rows = msgspec.convert(renamed(data, _plan, ids), OwnRows)
        document = {
            "names": _own_names(disclosed.names, own),
            "rows": _encoded(rows),
            "certificate": renamed(lines.get(tenant, {}), _lines_plan, ids),
            "superseded": [renamed_superseded(row, ids) for row in superseded.get(tenant, ())],
        }
        excerpts[tenant] = _encoder.encode(shared | document)
    return excerpts


def _encoded(rows: OwnRows) -> msgspec.Raw:
    """Return the named form, without empty tables that older excerpts did not have."""
    data = _encoder.encode(msgspec.convert(rows, _form, from_attributes=True))
    for name in reversed(OwnRows.newest):
        if getattr(rows, name):
            break
        data = data.removesuffix(f',"{name}":[]}}'.encode()) + b"}"
    return msgspec.Raw(data)


def own_digest(salt: bytes, excerpt: bytes) -> str:
    """Return the SHA-256 with which a log commits to an excerpt, in hex digits.

    Only the tenant knows `salt` (`pseudonyms.own_salt`), so others cannot test guesses of its rows.
    """
    return hashlib.sha256(salt + excerpt).hexdigest()


def _shared(disclosed: Disclosed) -> dict[str, Any]:
    """Return the data of a round that all tenants know."""
    snapshot, decision = disclosed.snapshot, disclosed.decision
    return {
        "schema": SCHEMA,
        "form": "own",
        "pool": disclosed.pool,
        "round": disclosed.round,
        "at_us": disclosed.at_us,
        "day": disclosed.day,
        "versions": dict(disclosed.versions),
        "round_us": snapshot.round_us,
        "lease_us": snapshot.lease_us,
        "lease_bounds_us": list(snapshot.lease_bounds_us),
        "policy": snapshot.policy,
        "policy_version": snapshot.policy_version,
        "options": snapshot.options,
        "capacity": dict(sorted(capacity_by_type(snapshot.nodes).items())),
        "prices": _forms(snapshot.prices),
        "surcharges": _forms(snapshot.surcharges),
        "next_prices": _forms(decision.prices),
        "next_surcharges": _forms(decision.surcharges),
    }


def _forms(rows: Iterable[Value]) -> list[Any]:
    return [msgspec.convert(row, form_of(type(row)), from_attributes=True) for row in rows]


# ---- rows by tenant ----


def _tables(disclosed: Disclosed) -> dict[str, dict[int, list[Any]]]:
    """Return rows by table name and tenant; a trade belongs to both its tenants."""
    snapshot, decision = disclosed.snapshot, disclosed.decision
    of_job = {job.id: job.tenant for job in snapshot.jobs}
    of_profile = {row.id: row.tenant for row in snapshot.profiles}

    def by_tenant(row: Any) -> tuple[int, ...]:
        return (row.tenant,)

    def by_id(row: Any) -> tuple[int, ...]:
        return (of_job.get(row.id, 0),)

    def by_job(row: Any) -> tuple[int, ...]:
        return (of_job.get(row.job, 0),)

    sums, next_sums = snapshot.service, decision.service
    tables: dict[str, tuple[Iterable[Any], _Owners]] = {
        "tenants": (snapshot.tenants, lambda row: (row.id,)),
        "backoffs": (snapshot.backoffs, by_job),
        "ranks": (snapshot.ranks, by_job),
        "profilers": (snapshot.profilers, lambda job: (of_job.get(job, 0),)),
        "measured": (snapshot.measured, lambda row: (of_profile.get(row.id, 0),)),
        "claims": (sums.claims, by_tenant),
        "classes": (sums.classes, by_tenant),
        "job_sums": (sums.jobs, by_tenant),
        "lengths": (decision.lengths, by_job),
        "trades": (decision.trades, lambda row: (row.buyer, row.seller)),
        "next_claims": (next_sums.claims, by_tenant),
        "next_classes": (next_sums.classes, by_tenant),
        "next_job_sums": (next_sums.jobs, by_tenant),
    }
    for name in ("job_resources", "utilities", "deadlines", "estimates"):
        tables[name] = (getattr(snapshot, name), by_id)
    for name in ("entitlements", "jobs", "leases", "changes", "profiles", "holds"):
        tables[name] = (getattr(snapshot, name), by_tenant)
    for name in (
        "grants", "renewals", "ends", "preemptions", "skips", "shares", "ideals", "swaps", "plans",
        "answers",
    ):  # fmt: skip # a table
        tables[name] = (getattr(decision, name), by_tenant)
    return {name: _grouped(rows, owners) for name, (rows, owners) in tables.items()}


def _grouped(rows: Iterable[Any], owners: _Owners) -> dict[int, list[Any]]:
    groups: dict[int, list[Any]] = {}
    for row in rows:
        for tenant in owners(row):
            groups.setdefault(tenant, []).append(row)
    return groups


def _lines(disclosed: Disclosed) -> dict[int, dict[str, list[Any]]]:
    """Return rows of the certificate by tenant, without figures of other tenants."""
    lines: dict[int, dict[str, list[Any]]] = {}
    for name in ("rows", "overclaims"):
        for row in (disclosed.certificate or {}).get(name, ()):
            own = {key: value for key, value in row.items() if key not in ("other", "best_other")}
            lines.setdefault(row["tenant"], {}).setdefault(name, []).append(own)
    return lines


def _superseded(disclosed: Disclosed) -> dict[int, list[dict[str, Any]]]:
    snapshot = disclosed.snapshot
    owners = {
        IdKind.JOB: {job.id: job.tenant for job in snapshot.jobs},
        IdKind.LEASE: {lease.id: lease.tenant for lease in snapshot.leases},
    }
    rows: dict[int, list[dict[str, Any]]] = {}
    for row in disclosed.superseded:
        tenant = owners[SUPERSEDED[row["item"]]].get(row["id"], 0)
        rows.setdefault(tenant, []).append(row)
    return rows


def _rows_of(tenant: int, tables: Mapping[str, Mapping[int, list[Any]]]) -> OwnRows:
    """Return the rows of a tenant, with 0 in place of other tenants' ids."""
    rows = {name: tuple(by_tenant.get(tenant, ())) for name, by_tenant in tables.items()}
    rows["preemptions"] = tuple(
        row if row.for_tenant == tenant else replace(row, for_job=0, for_tenant=0)
        for row in rows["preemptions"]
    )
    rows["trades"] = tuple(
        replace(
            row,
            buyer=tenant if row.buyer == tenant else 0,
            seller=tenant if row.seller == tenant else 0,
        )
        for row in rows["trades"]
    )
    return OwnRows(**rows)


def _own_names(names: Names, own: Mapping[IdKind, tuple[int, ...]]) -> Names:
    """Return the names of a tenant's ids, in the order of the excerpt's numbers."""
    all_names = msgspec.structs.astuple(names)
    kinds = zip(NUMBERED, all_names, strict=True)
    return Names(*(tuple(rows[number - 1] for number in own[kind]) for kind, rows in kinds))
