"""The bundle of a round: all data to recompute it, as one canonical JSON document.

Ids of tenants, jobs, leases and profiles are numbers from 1 in the order of the ids. Data that the
round did not read is left out (`redaction`). Names (`pseudonyms`) are in a list for each kind, by
number. Policies only use the order of ids, so the decision of the disclosed snapshot is the
disclosed decision, byte for byte (ADR 0195).

The document has its fields by name and in their order, sorted keys of free objects, no spaces. The
same round gives the same bytes, and a log of rounds commits to their SHA-256. Source of the schema:
docs/bundle.schema.json.
"""

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from evenshare_core.disclosure import shapes
from evenshare_core.disclosure.forms import DecisionForm, SnapshotForm
from evenshare_core.disclosure.pseudonyms import day_of
from evenshare_core.disclosure.redaction import redacted
from evenshare_core.disclosure.renaming import (
    NUMBERED,
    Ids,
    Plan,
    UndeclaredError,
    UnknownIdError,
    collected,
    ranks,
    renamed,
)
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.ids import IdKind
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.domain.values import Value
from evenshare_core.policies import registry
from evenshare_core.policies.options import OptionError
from evenshare_core.units import COUNT_MAX

T_co = TypeVar("T_co", covariant=True)
SCHEMA = 1


class BundleError(ValueError):
    """A bundle cannot be made or read.

    `field` is the wrong place, for example `snapshot.jobs[0].gpus`.

    `is_unknown` means that it has a newer schema, or a policy, field or value not known here.
    """

    def __init__(self, field: str, reason: str, *, is_unknown: bool = False) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.field, self.reason, self.is_unknown = field, reason, is_unknown


class Names(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names by number; the first name belongs to number 1."""

    tenants: tuple[str, ...]
    jobs: tuple[str, ...]
    leases: tuple[str, ...]
    profiles: tuple[str, ...]


class ByKind(NamedTuple, Generic[T_co]):
    """A value for each kind of id in a snapshot and in its policy's memory."""

    tenants: T_co
    jobs: T_co
    leases: T_co
    profiles: T_co


# Names by id, for all ids in a snapshot (`ids_of`).
Naming: TypeAlias = ByKind[Mapping[int, str]]
# The sorted ids in a snapshot.
RoundIds: TypeAlias = ByKind[tuple[int, ...]]


class Superseded(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of the decision that could not be applied, and the reason.

    `item` is grant, renewal or end; `id` is the job's for a grant, else the lease's. `ends` is true
    if the lease ended for this reason, although the decision did not end it.
    """

    item: Literal["grant", "renewal", "end"]
    id: int
    why: str
    ends: bool = False


# The document; see the module's docstring.
_BundleForm = msgspec.defstruct(
    "Bundle",
    [
        ("schema", Literal[1]),
        ("pool", str),
        ("round", int),
        ("at_us", int),
        ("day", str),
        ("versions", dict[str, str]),
        ("names", Names),
        ("snapshot", SnapshotForm),
        ("decision", DecisionForm),
        ("certificate", dict[str, Any] | None),
        ("superseded", tuple[Superseded, ...]),
    ],
    module=__name__,
    frozen=True,
    forbid_unknown_fields=True,
)


class _Head(msgspec.Struct):
    schema: int


@dataclass(frozen=True, slots=True)
class Disclosed:
    """A decoded bundle: the round with numbers for ids, and their names."""

    pool: str
    round: int
    at_us: int
    day: str
    versions: Mapping[str, str]
    names: Names
    snapshot: Snapshot
    decision: Decision
    certificate: dict[str, Any] | None
    superseded: tuple[dict[str, Any], ...]


_encoder = msgspec.json.Encoder(order="deterministic")
_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_BundleForm)
_head = msgspec.json.Decoder(_Head)
# A newer portal may send a field or a value that this version lacks; this breaks no promise.
_OF_NEWER_VERSIONS = ("Object contains unknown field", "Invalid enum value")
_PLACE = re.compile(r"(?P<reason>.*) - at `(?P<key>key in )?\$\.?(?P<field>[^`]*)`", re.DOTALL)


def ids_of(snapshot: Snapshot) -> RoundIds:
    """Return the ids in a snapshot, so that callers can look up their names.

    Raises:
        BundleError: the snapshot's policy is not known, or has undeclared memory.
    """
    return _round_ids(_collected(msgspec.to_builtins(snapshot), snapshot.policy))


def make_bundle(
    snapshot: Snapshot,
    decision: Decision,
    *,
    pool: str,
    naming: Naming,
    certificate: Mapping[str, Any] | None,
    superseded: Sequence[Mapping[str, Any]],
    versions: Mapping[str, str],
) -> bytes:
    """Return the canonical bytes of a round's bundle.

    `pool` is the name that readers know. `naming` has all ids in the snapshot (`ids_of`).
    `superseded` has rows like `Superseded`. `versions`: of the packages that decided the round.

    Raises:
        BundleError: the snapshot and the decision are of different rounds, an id is in neither of
            them or has no name, or the pool's settings are no longer valid.
    """
    data = msgspec.to_builtins(_redacted(snapshot))
    ids_by_kind = _collected(data, snapshot.policy)
    ids = ranks(ids_by_kind)
    new_snapshot = _renamed(data, shapes.snapshot_plan(snapshot.policy), ids, "snapshot")
    new_decision = _renamed(
        msgspec.to_builtins(decision), shapes.decision_plan(snapshot.policy), ids, "decision"
    )
    document = _BundleForm(
        schema=SCHEMA,
        pool=pool,
        round=snapshot.number,
        at_us=snapshot.at_us,
        day=day_of(snapshot.at_us),
        versions=dict(versions),
        names=_names(naming, _round_ids(ids_by_kind)),
        snapshot=_form(new_snapshot, Snapshot, SnapshotForm),
        decision=_form(new_decision, Decision, DecisionForm),
        certificate=None if certificate is None else _certificate(certificate, ids),
        superseded=tuple(_superseded(row, ids) for row in superseded),
    )
    return _encoder.encode(document)


def read_bundle(data: bytes) -> Disclosed:
    """Return a bundle's round, with numbers for ids.

    Raises:
        BundleError: it is not JSON, has another schema, or its parts do not fit each other.
    """
    try:
        document = _decoder.decode(data)
    except msgspec.ValidationError as error:
        raise _another_schema(data) or _placed(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BundleError("", f"is not JSON: {error}") from None
    snapshot = msgspec.convert(document.snapshot, Snapshot, from_attributes=True)
    decision = msgspec.convert(document.decision, Decision, from_attributes=True)
    _check(document, snapshot, decision)
    return Disclosed(
        pool=document.pool,
        round=document.round,
        at_us=document.at_us,
        day=document.day,
        versions=document.versions,
        names=document.names,
        snapshot=snapshot,
        decision=decision,
        certificate=document.certificate,
        superseded=tuple(msgspec.to_builtins(row) for row in document.superseded),
    )


def bundle_schema() -> dict[str, Any]:
    schema = msgspec.json.decode(msgspec.json.encode(msgspec.json.schema(_BundleForm)))
    for part in schema["$defs"].values():
        if "description" in part:
            part["description"] = inspect.cleandoc(part["description"])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


# ---- making ----

_MISFORMED = "has malformed parts"


def _redacted(snapshot: Snapshot) -> Snapshot:
    try:
        return redacted(snapshot)
    except registry.UnknownPolicyError as error:
        raise BundleError("snapshot.policy", str(error)) from None
    except OptionError as error:
        raise BundleError("snapshot.options", str(error)) from None


def _collected(data: Any, policy: str) -> dict[IdKind, tuple[int, ...]]:
    try:
        return collected(data, shapes.snapshot_plan(policy))
    except registry.UnknownPolicyError as error:
        raise BundleError("snapshot.policy", str(error), is_unknown=True) from None
    except UndeclaredError as error:
        raise BundleError("snapshot.memory", str(error)) from None
    except (TypeError, ValueError, LookupError, AttributeError):
        raise BundleError("snapshot.memory", f"is not a valid memory of {policy}") from None


def _round_ids(by_kind: Mapping[IdKind, tuple[int, ...]]) -> RoundIds:
    return RoundIds(*(by_kind[kind] for kind in NUMBERED))


def _renamed(data: Any, plan: Plan, ids: Ids, field: str) -> Any:
    try:
        return renamed(data, plan, ids)
    except (UndeclaredError, UnknownIdError) as error:
        raise BundleError(field, str(error)) from None
    except (TypeError, ValueError, LookupError, AttributeError):
        raise BundleError(field, _MISFORMED) from None


def _names(naming: Naming, ids: RoundIds) -> Names:
    try:
        return Names(
            *(tuple([by_id[id_] for id_ in rows]) for by_id, rows in zip(naming, ids, strict=True))
        )
    except KeyError as error:
        raise BundleError("names", f"no name for the id {error.args[0]}") from None


def _form(data: Any, value_type: type[Value], form: type[msgspec.Struct]) -> Any:
    """Return a value's plain data with field names."""
    return msgspec.convert(msgspec.convert(data, value_type), form, from_attributes=True)


def _certificate(certificate: Mapping[str, Any], ids: Ids) -> dict[str, Any]:
    try:
        data = shapes.disclosed_certificate(certificate)
        shapes.renamed_certificate(data, ids)
    except (UndeclaredError, UnknownIdError) as error:
        raise BundleError("certificate", str(error)) from None
    except (TypeError, ValueError, LookupError, AttributeError):
        raise BundleError("certificate", _MISFORMED) from None
    return data


def _superseded(row: Mapping[str, Any], ids: Ids) -> Superseded:
    try:
        data = msgspec.to_builtins(msgspec.convert(dict(row), Superseded))
        return msgspec.convert(shapes.renamed_superseded(data, ids), Superseded)
    except (msgspec.ValidationError, UnknownIdError) as error:
        raise BundleError("superseded", str(error)) from None


# ---- reading ----


def _another_schema(data: bytes) -> BundleError | None:
    """Return the error for a document of a newer or older schema; None for any other document."""
    try:
        schema = _head.decode(data).schema
    except (msgspec.MsgspecError, RecursionError):
        return None
    if schema == SCHEMA:
        return None
    reason = f"is {schema}; this version reads {SCHEMA}"
    return BundleError("schema", reason, is_unknown=schema > SCHEMA)


def _placed(error: msgspec.ValidationError) -> BundleError:
    """Return the error with its field separated from the message."""
    match = _PLACE.fullmatch(str(error))
    field, reason = (match["field"], match["reason"]) if match else ("", str(error))
    return BundleError(field, reason, is_unknown=reason.startswith(_OF_NEWER_VERSIONS))


def _check(document: Any, snapshot: Snapshot, decision: Decision) -> None:
    """Check that all parts belong to one round, and that each number has a name."""
    if document.round != snapshot.number:
        raise BundleError("round", f"is {document.round}, that of the snapshot {snapshot.number}")
    gpus = sum(abs(node.gpus) for node in snapshot.nodes)
    if gpus > COUNT_MAX:
        # Placement has a bucket for each count of GPUs, so a huge number would exhaust the memory.
        raise BundleError("snapshot.nodes", f"has {gpus:,} GPUs; a pool has {COUNT_MAX:,} at most")
    if document.at_us != snapshot.at_us:
        raise BundleError("at_us", f"is {document.at_us}, that of the snapshot {snapshot.at_us}")
    try:
        day = day_of(document.at_us)
    except OverflowError:
        raise BundleError("at_us", f"is {document.at_us}, not a day of the calendar") from None
    if document.day != day:
        raise BundleError("day", f"is {document.day}, but at_us is on {day}")
    numbers = _collected(msgspec.to_builtins(snapshot), snapshot.policy)
    for kind, names in zip(NUMBERED, msgspec.structs.astuple(document.names), strict=True):
        if numbers[kind] != tuple(range(1, len(names) + 1)):
            reason = f"has {len(names)} names, the snapshot {len(numbers[kind])} ids"
            raise BundleError(f"names.{kind.value}", reason)
    ids = ranks(numbers)
    plan = shapes.decision_plan(snapshot.policy)
    _renamed(msgspec.to_builtins(decision), plan, ids, "decision")
    if document.certificate is not None:
        _certificate(document.certificate, ids)
    for row in document.superseded:
        _superseded(msgspec.to_builtins(row), ids)
