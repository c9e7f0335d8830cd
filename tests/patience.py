"""A pytest plugin that sets the numbers of Hypothesis examples and of plan repairs.

`make test` runs with the profile `quick`, `make test-rest` with `ci`, `make soak` with `soak`. The
first two draw the same examples each time; `soak` draws others. A property whose examples take a
tenth of a second uses `settings(max_examples=some())`, and one whose examples take a second
`few()`.
"""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

EXAMPLES = {"quick": 20, "ci": 60, "soak": 1000}

for _name, _examples in EXAMPLES.items():
    settings.register_profile(
        _name,
        settings(),
        max_examples=_examples,
        deadline=None,
        derandomize=_name != "soak",
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("ci")


def some() -> int:
    """Return a quarter of the profile's examples."""
    return settings().max_examples // 4


def few() -> int:
    """Return a twentieth of the profile's examples, at least two."""
    return max(2, settings().max_examples // 20)


@pytest.fixture(scope="module")
def quick_plans() -> Iterator[None]:
    """Limit UniSched's repairs of plans to 10 kicks (not 400), in modules that test every policy.

    Repairs take 4/5 of UniSched's time. Other tests check the quality of its plans.
    """
    # imported late, because a plugin is imported before the code of a mutant
    from evenshare_core.deadlines import repair

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repair, "KICKS", 10)
        yield
