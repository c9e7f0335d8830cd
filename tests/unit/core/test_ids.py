"""Test that each field and each key of a policy's memory declares whether its integers are ids."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple, Union

import msgspec
import pytest

from evenshare_core.disclosure.renaming import (
    UndeclaredError,
    UnknownIdError,
    collected,
    plan_of,
    ranks,
    renamed,
)
from evenshare_core.disclosure.shapes import BROKEN, CERTIFICATE_IDS, certificate_shape
from evenshare_core.domain.decision import NUMBERS, Decision, Skip
from evenshare_core.domain.ids import (
    ById,
    Each,
    Fields,
    IdKind,
    JobId,
    Row,
    Shape,
    TenantId,
    hints_of,
    is_row,
    shape_of,
)
from evenshare_core.domain.jobs import Job
from evenshare_core.domain.reasons import Reason
from evenshare_core.domain.snapshot import Snapshot
from evenshare_core.domain.values import Value
from evenshare_core.fairness.certificate import Certificate, Property
from evenshare_core.policies.registry import POLICIES

# Integers that are not ids, by unit or by name. `pool` is the same in all rounds of a pool.
# `number` and `round` count rounds.
UNITS = ("_us", "_micro", "_milli", "_mb")
PLAIN = {
    "schema", "pool", "number", "seed", "gpus", "weight", "terms", "term", "own", "borrowed",
    "used", "capacity", "queued", "quota", "demand", "weights", "held", "cpus", "priority",
    "losses", "borrow_limit", "lend_limit", "reports", "order", "person", "deserved",
    "held_before", "got", "version", "checked", "count", "left_out", "of",
    "overclaims_left_out", "ClassService.jobs", "Lease.placement", "Grant.placement", "speedups",
    "declared",
}  # fmt: skip
# Fields that hold untyped objects, and the declaration of their keys.
OBJECTS = {
    "Snapshot.options": "settings: each policy's options are a type",
    "Snapshot.memory": "Policy.memory_ids",
    "Decision.memory": "Policy.memory_ids",
    "Skip.numbers": "NUMBERS",
    "Preemption.numbers": "NUMBERS",
}


class Place(NamedTuple):
    """A field whose type is a part of a round."""

    owner: str
    name: str
    hint: Any


def parts_of(hint: Any) -> Iterator[Any]:
    """Return the types in a type hint, except those of ids and shapes."""
    if typing.get_origin(hint) is Annotated:
        metas = typing.get_args(hint)[1:]
        if any(isinstance(meta, msgspec.Meta) and "ids" in (meta.extra or {}) for meta in metas):
            return
        hint = typing.get_args(hint)[0]
    if typing.get_origin(hint) in (tuple, Union, types.UnionType):
        for one in typing.get_args(hint):
            yield from parts_of(one)
    else:
        yield hint


def is_struct(hint: Any) -> bool:
    return is_row(hint) or (isinstance(hint, type) and issubclass(hint, msgspec.Struct))


def places(root: type, seen: set[type]) -> Iterator[Place]:
    """Return all fields of a type and of the types in it."""
    seen.add(root)
    hints = hints_of(root)
    for name, hint in hints.items():
        yield Place(root.__name__, name, hint)
        for part in parts_of(hint):
            if is_struct(part) and part not in seen:
                yield from places(part, seen)


def undeclared(root: type) -> set[str]:
    """Return the fields whose integers are not declared."""
    return {
        f"{place.owner}.{place.name}"
        for place in places(root, set())
        if int in set(parts_of(place.hint))
        and not place.name.endswith(UNITS)
        and not {place.name, f"{place.owner}.{place.name}"} & PLAIN
    }


class TestFields:
    @pytest.mark.parametrize("root", [Snapshot, Decision])
    def test_integer_fields_are_declared_as_ids_or_plain(self, root: type) -> None:
        assert undeclared(root) == set()

    def test_certificate_fields_are_declared_as_ids_or_plain(self) -> None:
        left = {place.rpartition(".")[2] for place in undeclared(Certificate)}
        assert left == set(CERTIFICATE_IDS) | {"broken"}
        assert set(BROKEN) <= set(Property)

    def test_finds_undeclared_integer_field(self) -> None:
        class Forgotten(Value, frozen=True, array_like=True):
            job: JobId
            rival: int
            at_us: int = 0

        assert undeclared(Forgotten) == {"Forgotten.rival"}

    @pytest.mark.parametrize("root", [Snapshot, Decision])
    def test_dict_fields_have_declared_keys(self, root: type) -> None:
        objects = {
            f"{place.owner}.{place.name}"
            for place in places(root, set())
            if "dict" in str(place.hint)
        }
        assert objects == {name for name in OBJECTS if name.split(".")[0] in owners(root)}


def owners(root: type) -> set[str]:
    return {place.owner for place in places(root, set())}


class TestShape:
    def test_lists_id_fields_of_job(self) -> None:
        shape = shape_of(Job)
        assert isinstance(shape, Row)
        ids = {
            name: kind
            for name, kind in zip(Job.__struct_fields__, shape.places, strict=True)
            if kind is not None
        }
        assert ids == {"id": IdKind.JOB, "tenant": IdKind.TENANT, "profile": IdKind.PROFILE}

    def test_is_none_for_types_without_ids(self) -> None:
        assert shape_of(int) is None
        assert shape_of(tuple[tuple[str, int], ...]) is None
        assert shape_of(tuple[TenantId, ...] | None) == Each(IdKind.TENANT)

    @pytest.mark.parametrize("policy", sorted(POLICIES))
    def test_policy_memory_declares_fields(self, policy: str) -> None:
        assert isinstance(POLICIES[policy].memory_ids, Fields)


class TestRenaming:
    IDS = ranks({IdKind.TENANT: (5, 70), IdKind.JOB: (9, 10), IdKind.LEASE: (), IdKind.PROFILE: ()})

    @pytest.mark.parametrize(
        ("shape", "data", "new"),
        [
            (IdKind.JOB, 10, 2),
            (IdKind.NODE, 10, 10),
            (None, [1], [1]),
            (Row((IdKind.JOB, None, IdKind.TENANT)), [9, 9, 70, 9], [1, 9, 2, 9]),
            (Each(IdKind.TENANT), [70, 5, 0, None], [2, 1, 0, None]),
            (Each(Row((None, IdKind.JOB))), [[1, 9], [1, 10]], [[1, 1], [1, 2]]),
            (Each(Row((IdKind.JOB,))), {"a": [9], "b": [10]}, {"a": [1], "b": [2]}),
            (Each(Each(IdKind.JOB)), {"a": [9]}, {"a": [1]}),
            (ById(IdKind.JOB), {"10": 5, "9": 4}, {"2": 5, "1": 4}),
            (ById(IdKind.JOB, Row((IdKind.TENANT,))), {"9": [5, 5]}, {"1": [1, 5]}),
            (Fields({"a": IdKind.JOB, "b": None}), {"a": 9, "b": 9}, {"a": 1, "b": 9}),
        ],
    )
    def test_changes_only_ids(self, shape: Shape, data: Any, new: Any) -> None:
        seen = collected(msgspec.json.decode(msgspec.json.encode(data)), plan_of(shape))
        assert all(set(ids) <= set(self.IDS[kind]) for kind, ids in seen.items())
        assert renamed(data, plan_of(shape), self.IDS) == new

    def test_collects_ids_to_rename(self) -> None:
        skip = Skip(Reason.TENANT_PASSED_OVER, 7, (30, 4), 2, {"first_job": 5, "needed": 1})
        seen = collected(msgspec.to_builtins(skip), plan_of(shape_of(Skip)))
        assert seen[IdKind.JOB] == (4, 5, 30)
        assert seen[IdKind.TENANT] == (7,)

    def test_rejects_undeclared_key(self) -> None:
        skip = Skip(Reason.BUDGET, 5, (9,), 2, {"rival": 10})
        with pytest.raises(UndeclaredError, match="rival"):
            renamed(msgspec.to_builtins(skip), plan_of(shape_of(Skip)), self.IDS)
        assert "rival" not in NUMBERS

    def test_rejects_unknown_id(self) -> None:
        with pytest.raises(UnknownIdError, match="11"):
            renamed([11], plan_of(Each(IdKind.JOB)), self.IDS)

    def test_certificate_shape_covers_all_fields(self) -> None:
        shape = certificate_shape()
        assert isinstance(shape, Fields)
        assert set(shape.parts) == set(Certificate.__struct_fields__)
