"""Finds the ids in the parts of a round without value types: certificates and superseded parts.

Certificates are plain data with names; their fields are those of the types of
`evenshare_core.fairness.certificate`.
"""

import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, Union

import msgspec

from evenshare_core.disclosure.renaming import Ids, Plan, plan_of, renamed
from evenshare_core.domain.decision import Decision
from evenshare_core.domain.ids import Each, Fields, IdKind, Row, Shape, shape_of
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.fairness.certificate import Certificate, Property
from evenshare_core.fairness.certify import UNTRIED
from evenshare_core.policies import registry

# Fields of certificates that are ids, by name.
CERTIFICATE_IDS = {
    "tenant": IdKind.TENANT,
    "other": IdKind.TENANT,
    "profile": IdKind.PROFILE,
}
# The kind of the ids in `broken`, for certificate lines in which they are not tenants.
BROKEN = {
    Property.CAPACITY: IdKind.NODE,
    Property.GANG: IdKind.JOB,
    Property.SINGLE_HOLD: IdKind.JOB,
}
SUPERSEDED = {"grant": IdKind.JOB, "renewal": IdKind.LEASE, "end": IdKind.LEASE}


@cache
def snapshot_plan(policy: str) -> Plan:
    """Return the plan for snapshots of a policy, including its memory.

    Raises:
        UnknownPolicyError: there is no such policy.
    """
    return _with_memory(Snapshot, policy)


@cache
def decision_plan(policy: str) -> Plan:
    """Return the plan for decisions of a policy.

    Raises:
        UnknownPolicyError: there is no such policy.
    """
    return _with_memory(Decision, policy)


def _with_memory(value_type: type[Snapshot | Decision], policy: str) -> Plan:
    shape = shape_of(value_type)
    if not isinstance(shape, Row):
        raise TypeError(f"{value_type.__name__} has no ids")
    places = list(shape.places)
    places[value_type.__struct_fields__.index("memory")] = registry.policy(policy).memory_ids
    return plan_of(Row(tuple(places)))


def certificate_shape(certificate_type: Any = Certificate) -> Shape:
    """Return the shape of a certificate as plain data, except for `broken` of its lines."""
    origin, arguments = typing.get_origin(certificate_type), typing.get_args(certificate_type)
    if origin is tuple:
        shape = certificate_shape(arguments[0])
        return shape and Each(shape)
    if origin in (Union, types.UnionType):
        return certificate_shape(arguments[0])
    if isinstance(certificate_type, type) and issubclass(certificate_type, msgspec.Struct):
        hints = typing.get_type_hints(certificate_type)
        return Fields(
            {
                name: CERTIFICATE_IDS.get(name) or certificate_shape(hints[name])
                for name in certificate_type.__struct_fields__
            }
        )
    return None


@cache
def _certificate_plan() -> Plan:
    return plan_of(certificate_shape())


def disclosed_certificate(certificate: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a certificate (plain data) without error messages.

    Messages may contain ids, so only the error's name stays. Verifiers recompute the certificate
    from the disclosed round and compare it in this form.
    """
    data: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(certificate))
    if data.get("failure"):
        data["failure"] = data["failure"].partition(":")[0]
    for line in data.get("findings", ()):
        if line.get("why", "").startswith(UNTRIED):
            line["why"] = UNTRIED + line["why"].removeprefix(UNTRIED).partition(":")[0]
    return data


def renamed_certificate(certificate: dict[str, Any], ids: Ids) -> None:
    """Replace the ids of a certificate, which is plain data, in place.

    Raises:
        UndeclaredError, UnknownIdError: as `renamed`.
    """
    renamed(certificate, _certificate_plan(), ids)
    for line in certificate.get("findings", ()):
        if line.get("broken"):
            kind = BROKEN.get(line["name"], IdKind.TENANT)
            line["broken"] = renamed(line["broken"], _ids_of_kind(kind), ids)


@cache
def _ids_of_kind(kind: IdKind) -> Plan:
    return plan_of(Each(kind))


def renamed_superseded(row: dict[str, Any], ids: Ids) -> dict[str, Any]:
    """Return a superseded part (plain data) with its id replaced.

    Raises:
        UnknownIdError: as `renamed`.
        KeyError: the item has an unknown kind.
    """
    kind = SUPERSEDED[row["item"]]
    return row | {"id": renamed(row["id"], plan_of(kind), ids)}
