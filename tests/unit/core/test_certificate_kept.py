"""Test that stored certificates keep their meaning."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from evenshare_core.fairness.certificate import (
    MAX_NAMED,
    MAX_ROWS,
    SEARCH_VERSION,
    VERSION,
    VERSION_BEFORE,
    Basis,
    Certificate,
    CertificateItem,
    JobTypeResult,
    Overclaim,
    Property,
    Verdict,
    certificate,
    figure,
    plain,
    read,
)

# These values are in stored rows, which are never rewritten.
WORDS = {
    Property: (
        "capacity gang single_hold long_term_order quota_guarantee promised_starts trades"
        " individual_rationality envy_free sharing_incentive equal_throughput pareto"
        " overstating understating measured_speeds"
    ),
    Verdict: "holds noted violated not_promised not_applicable unknown",
    Basis: "leases ideals sums trades terms values probes speeds",
}
ITEM = {"name": "pareto", "verdict": "holds", "basis": "sums"}
RESULT = {"tenant": 1, "profile": 2, "weight": 1.0, "held": 3.0, "alone": 2.0}
WHOLE = {"version": VERSION_BEFORE, "violated": [], "findings": [ITEM], "rows": [RESULT]}


@pytest.mark.parametrize("words", WORDS)
def test_stored_enum_values_are_unchanged(words: Any) -> None:
    assert [word.value for word in words] == WORDS[words].split()


def test_default_values_are_not_stored() -> None:
    item = CertificateItem(Property.PARETO, Verdict.HOLDS, Basis.SUMS)
    row = JobTypeResult(tenant=1, profile=2, weight=1.0, held=3.0, alone=2.0)
    assert plain(certificate((item,), (row,))) == WHOLE
    assert plain(certificate(())) == {"version": VERSION_BEFORE, "violated": []}
    assert read(WHOLE) == certificate((item,), (row,))
    # from before certificates had a line of trades
    assert read(WHOLE | {"version": 2}).findings == (item,)
    assert (item.checked, item.count, item.broken, item.why) == (0, 0, (), "")
    assert (item.worst, item.tenant, item.other) == (item.in_gpus, item.total, item.tolerance)
    assert item.worst is None
    assert (row.ideal, row.best_other, row.other, row.capped) == (None, None, None, False)
    assert read({"version": VERSION, "violated": []}) == Certificate(
        version=VERSION, violated=(), findings=(), rows=(), left_out=0, failure=""
    )


def test_all_fields_round_trip() -> None:
    item = CertificateItem(
        Property.ENVY_FREE, Verdict.VIOLATED, Basis.IDEALS, checked=4, count=2, broken=(1, 2),
        worst=0.5, tenant=1, other=2, in_gpus=0.25, total=7.0, tolerance=1e-6, why="because",
        of=15, gpu_type="v100", factor=2.0, bound="by theorem",
    )  # fmt: skip
    row = JobTypeResult(1, 2, 1.0, 3.0, 2.0, ideal=2.5, best_other=4.0, other=9, capped=True)
    whole = certificate((item,), (row,), failure="none")
    assert read(plain(whole)) == whole
    assert (whole.violated, whole.failure) == ((Property.ENVY_FREE,), "none")


@pytest.mark.parametrize(
    "data",
    [
        WHOLE | {"more": 1},
        WHOLE | {"findings": [ITEM | {"more": 1}]},
        WHOLE | {"rows": [RESULT | {"more": 1}]},
        WHOLE | {"findings": [ITEM | {"verdict": "maybe"}]},
    ],
)
def test_rejects_unknown_version(data: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        read(data)


@pytest.mark.parametrize("data", [WHOLE, ITEM, RESULT])
def test_values_are_immutable(data: dict[str, Any]) -> None:
    kinds = {3: CertificateItem, 4: Certificate, 5: JobTypeResult}
    value = msgspec.convert(data, kinds[len(data)])
    with pytest.raises(AttributeError):
        setattr(value, next(iter(data)), None)


def test_counts_omitted_rows() -> None:
    rows = tuple(JobTypeResult(n, n, 1.0, 1.0, 1.0) for n in range(MAX_ROWS + 2))
    assert (MAX_ROWS, MAX_NAMED, VERSION) == (200, 20, 7)
    assert [certificate((), rows[:n]).left_out for n in (0, 199, 200, 201, 202)] == [0, 0, 0, 1, 2]
    assert certificate((), rows).rows == rows[:MAX_ROWS]


def test_counts_omitted_overclaims() -> None:
    rows = tuple(Overclaim(1, n, "v100", 2000, 1000, 1000, 50, 9) for n in range(52))
    made = [certificate((), overclaims=rows[:n]) for n in (0, 50, 51, 52)]
    assert [one.overclaims_left_out for one in made] == [0, 0, 1, 2]
    assert made[-1].overclaims == rows[:50]
    assert read(plain(made[-1])) == made[-1]


def test_version_depends_on_newest_property() -> None:
    worth = CertificateItem(Property.INDIVIDUAL_RATIONALITY, Verdict.HOLDS, Basis.VALUES)
    trades = CertificateItem(Property.TRADES, Verdict.HOLDS, Basis.TRADES)
    speeds = CertificateItem(Property.MEASURED_SPEEDS, Verdict.HOLDS, Basis.SPEEDS)
    assert certificate((trades, worth)).version == 4
    assert certificate((trades, worth, speeds)).version == certificate((speeds,)).version == 5
    assert certificate((trades,)).version == VERSION_BEFORE == 3


def test_promised_starts_require_version_7() -> None:
    starts = CertificateItem(Property.PROMISED_STARTS, Verdict.HOLDS, Basis.LEASES, checked=2)
    gang = CertificateItem(Property.GANG, Verdict.HOLDS, Basis.LEASES)
    assert certificate((gang, starts)).version == VERSION == 7
    assert certificate((gang,)).version == VERSION_BEFORE


def test_order_or_misreport_probes_require_version_6() -> None:
    speeds = CertificateItem(Property.MEASURED_SPEEDS, Verdict.HOLDS, Basis.SPEEDS)
    order = CertificateItem(Property.LONG_TERM_ORDER, Verdict.HOLDS, Basis.SUMS)
    other = CertificateItem(Property.LONG_TERM_ORDER, Verdict.NOT_PROMISED, Basis.SUMS)
    probes = CertificateItem(Property.OVERSTATING, Verdict.HOLDS, Basis.PROBES, checked=3, of=15)
    before = CertificateItem(Property.OVERSTATING, Verdict.HOLDS, Basis.PROBES, checked=1)
    assert (
        certificate((order,)).version
        == certificate((speeds, probes)).version
        == SEARCH_VERSION
        == 6
    )
    assert certificate((other, before)).version == VERSION_BEFORE
    # Old certificates can still be read without a change.
    old = plain(certificate((other, before)))
    assert plain(read(old)) == old
    assert '"of"' not in msgspec.json.encode(old).decode()


@pytest.mark.parametrize(
    ("value", "kept"), [(-1e-9, "0.0"), (0.12345678, "0.123457"), (2, "2.0"), (-0.5, "-0.5")]
)
def test_figure_has_six_places_and_no_negative_zero(value: float, kept: str) -> None:
    assert str(figure(value)) == kept
