"""Messages of `make lock` on locked versions."""

from __future__ import annotations

import pytest

from requirements.behind import NAME, releases_behind, wanted

VERSIONS = ["3.1", "3.0", "2.9", "2.8"]


class TestReleasesBehind:
    @pytest.mark.parametrize(
        ("locked", "expected"),
        [(["3.1"], 0), (["3.0"], 1), (["2.8"], 3), (["4.0", "3.1"], 0), (["1.0"], 4)],
    )
    def test_are_counted_from_newest(self, locked: list[str], expected: int) -> None:
        assert releases_behind(VERSIONS, locked) == expected


def test_wanted_names_are_normalized() -> None:
    assert {"celery", "django", "pyyaml", "psycopg", "schemathesis"} <= set(wanted())
    assert NAME.match("-r core.in") is None
