"""How hard tests try: examples that Hypothesis draws, repairs of plans. A plugin.

`make test` runs with the profile `quick`, `make test-rest` with `ci`, `make soak` with `soak`.
The first two draw the same examples each time; `soak` draws others. A property whose examples
take a tenth of a second says `settings(max_examples=some())`, one whose examples take a second
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
    """A quarter of the profile's examples."""
    return settings().max_examples // 4


def few() -> int:
    """A twentieth of the profile's examples, and two at least."""
    return max(2, settings().max_examples // 20)


@pytest.fixture(scope="module")
def quick_plans() -> Iterator[None]:
    """For modules that run every policy: UniSched gives up a plan's repair after 10 kicks, not 400.

    How good its plans are is asked by tests of its own. Repairs are 4/5 of its time.
    """
    # Not at the top: a plugin is read before a mutant's code is.
    from evenshare_core.deadlines import repair

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repair, "KICKS", 10)
        yield
