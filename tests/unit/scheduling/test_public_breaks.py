"""Test the log's text about a round that does not follow from the previous one."""

from __future__ import annotations

import pytest

from scheduling.engine.seal import _public_breaks
from scheduling.models import Pool

SAYS = ("tenant 7 had received 777 GPU-seconds", "job 3 is not there any more")


@pytest.mark.parametrize("visibility", list(Pool.Visibility))
def test_consistent_round_has_no_breaks(visibility: str) -> None:
    assert _public_breaks((), 9, visibility) == ()


@pytest.mark.parametrize("visibility", list(Pool.Visibility))
def test_break_is_summarized_if_pool_hides_tenants(visibility: str) -> None:
    said = _public_breaks(SAYS, 9, visibility)
    if visibility == Pool.Visibility.OWN:
        assert said == ("It does not begin with what round 8 left.",)
    else:
        assert said == SAYS
