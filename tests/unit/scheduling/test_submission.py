"""Test specifications of jobs: accepted values, and errors about invalid ones."""

from __future__ import annotations

import contextlib
import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.requests.jobs import JobRequest
from scheduling.selectors.pools.offers import PoolOffer
from scheduling.services.job_requests import named_pool, read_job_request
from tenants.input.errors import InvalidInputError
from tenants.input.requests import request_fields

LOCAL = PoolOffer(1, "local", "local", True, "main", 20, 2, {"cpu": 2, "v100": 8})
VIRTUAL = PoolOffer(2, "philly", "virtual", False, "demo", 900, 5, {"gpu": 480})
KNOWN = tuple(request_fields(JobRequest))
GOOD: dict[str, Any] = {"pool": "local", "gpus": 2, "command": ["python", "train.py"]}
EMOJI = "\N{PARTY POPPER}"


def errors(raw: object, offer: PoolOffer | None = LOCAL) -> dict[str, str]:
    with pytest.raises(InvalidInputError) as caught:
        read_job_request(raw, offer)
    return {error.field: error.reason for error in caught.value.errors}


class TestValidSpecification:
    def test_gets_defaults(self) -> None:
        read = read_job_request(GOOD, LOCAL)
        assert (read.gpus, read.command, read.weight) == (2, ("python", "train.py"), 1)
        assert (read.name, read.gpu_types, read.max_price, read.duration_s) == ("", (), None, None)

    def test_accepts_every_field(self) -> None:
        raw = GOOD | {
            "name": "a-1", "tenant": "x", "gpu_types": ["v100"], "max_price": "0.250001",
            "environment": {"SEED": "1", "_x": f"tab\tline\n{EMOJI}"}, "weight": 1000,
        }  # fmt: skip
        read = read_job_request(raw, LOCAL)
        assert read.max_price == Decimal("0.250001")
        assert read.environment == {"SEED": "1", "_x": f"tab\tline\n{EMOJI}"}

    def test_treats_null_as_absent(self) -> None:
        read = read_job_request(
            GOOD | dict.fromkeys(("name", "max_price", "weight", "duration_s")), LOCAL
        )
        assert read == read_job_request(GOOD, LOCAL)

    def test_for_virtual_pool_has_duration_without_command(self) -> None:
        assert read_job_request({"pool": "philly", "gpus": 480}, VIRTUAL).duration_s == 600
        assert (
            read_job_request({"pool": "philly", "gpus": 1, "duration_s": 7}, VIRTUAL).duration_s
            == 7
        )

    @pytest.mark.parametrize("price", ["0", "0.000001", "999999999999.999999", 3, Decimal("1.5")])
    def test_accepts_prices(self, price: object) -> None:
        assert read_job_request(GOOD | {"max_price": price}, LOCAL).max_price == Decimal(str(price))


# Invalid values by field; each error names the field.
BAD: dict[str, list[object]] = {
    "gpus": [0, -1, True, 1.5, "2", [], {}, 9, 10**30, Decimal(1)],
    "weight": [0, -1, 1001, "1", False, 2**70],
    "name": ["", "A", "-a", "a-", "a" * 64, "a_b", "a\n", "\x00", "\ud800", 5, [], "\u0430"],
    "max_price": [
        -1, "-1", "1e5", "NaN", "Infinity", "0.0000001", "1" * 15, 1.5, True, [], "", "\u0661",
        " 1", "1\n", 10**12, Decimal("1e999999999"), Decimal("NaN"), Decimal("-0.1"),
        Decimal("1e-9"),
    ],
    "command": ["ls", {}, 5, ["a"] * 257, [], ["x" * 30_000] * 9],
    "gpu_types": ["cpu", {}, ["cpu"] * 17, ["cpu", "v100", "cpu"]],
    "environment": [
        [], "A=1", {f"A{i}": "" for i in range(257)}, {f"A{i}": "x" * 30_000 for i in range(9)},
    ],
    "duration_s": [60, 0, "1"],
}  # fmt: skip
# Invalid values inside a field.
BAD_ITEMS: dict[str, list[object]] = {
    "command[0]": [[""], [" \n"]],
    "command[1]": [
        ["ok", "\x00"], ["ok", "\x1b[31m"], ["ok", "\x7f"], ["ok", "\x85"], ["ok", "\ud800"],
        ["ok", "x" * 32_769], ["ok", 5], ["ok", None], ["ok", ["a"]],
    ],
    "gpu_types[0]": [["h100"], [""], [5], [None], ["x" * 65], ["\x00"], ["\ud800"]],
    "environment.A": [
        {"A": "\x00"}, {"A": 1}, {"A": None}, {"A": {}}, {"A": "\ud800"}, {"A": "x" * 40_000},
    ],
}  # fmt: skip
BAD_KEYS = (
    *("LD_PRELOAD", "ld_preload", "DYLD_INSERT_LIBRARIES", "PYTHONPATH", "SLURM_JOB_ID", "1A"),
    *("SBATCH_X", "EVENSHARE_JOB_DIR", "PATH", "HOME", "IFS", "BASH_ENV", "A-B", "A=B", "A B"),
    *("PYTHONSTARTUP", "CUDA_VISIBLE_DEVICES", "BASH_FUNC_x%%"),
)
NASTY: list[tuple[str, object, str]] = [
    *((at, value, at) for at, values in BAD.items() for value in values),
    *((re.split(r"[.\[]", at)[0], value, at) for at in BAD_ITEMS for value in BAD_ITEMS[at]),
    *(("environment", {key: "1"}, f"environment.{key}") for key in BAD_KEYS),
]


class TestInvalidField:
    @pytest.mark.parametrize(("field", "value", "named"), NASTY, ids=lambda v: ascii(v)[:40])
    def test_is_named(self, field: str, value: object, named: str) -> None:
        assert list(errors(GOOD | {field: value})) == [named]

    @pytest.mark.parametrize("bad", [None, [], "x", 5, True])
    def test_is_whole_body_if_it_is_no_object(self, bad: object) -> None:
        assert errors(bad) == {"": "must be an object"}

    @pytest.mark.parametrize("bad", ["", "../x", "a" * 64, "\x00", 5, None, [], {}])
    def test_is_pool_if_tenant_has_no_such_pool(self, bad: object) -> None:
        assert named_pool(GOOD | {"pool": bad}) == ""
        assert list(errors(GOOD | {"pool": bad}, None)) == ["pool"]

    def test_includes_every_unknown_field(self) -> None:
        extras = {"state": "running", "tenant_id": 1, "submitted_by": 1, "version": 9}
        assert set(errors(GOOD | extras)) == set(extras)

    def test_errors_have_fixed_order(self) -> None:
        raw = {"weight": 0, "gpus": "x", "pool": "local", "zz": 1, "name": "A"}
        assert list(errors(raw)) == ["gpus", "command", "name", "weight", "zz"]

    def test_hint_shows_limit_of_pool(self) -> None:
        with pytest.raises(InvalidInputError) as caught:
            read_job_request(GOOD | {"gpus": 3, "gpu_types": ["cpu"]}, LOCAL)
        (error,) = caught.value.errors
        assert (error.field, error.code, error.hint) == ("gpus", "too_large", "Request at most 2.")

    def test_errors_are_limited_to_100(self) -> None:
        assert len(errors(GOOD | {f"x{i}": 1 for i in range(5000)})) == 100


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.decimals() | st.text(max_size=80) | st.floats(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=12,
)


class TestAnyInput:
    @given(st.dictionaries(st.sampled_from(KNOWN) | st.text(max_size=9), VALUES))
    def test_is_accepted_or_rejected_without_failure(self, raw: dict[str, Any]) -> None:
        for offer in (LOCAL, VIRTUAL, None):
            # The test fails on any other exception.
            with contextlib.suppress(InvalidInputError):
                read = read_job_request(GOOD | raw, offer)
                assert offer is not None
                assert 1 <= read.gpus <= max(offer.gpus.values())
                assert all("\x00" not in item for item in read.command)
