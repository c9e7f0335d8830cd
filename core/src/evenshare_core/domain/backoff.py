"""How long a job waits whose process is lost again and again: pure, and the same everywhere.

A process is lost when it ends without a word: its supervisor was killed, its node vanished. Once is
bad luck, and the job starts again. One that is lost soon after each start takes GPUs from others
and does nothing with them; it waits longer each time, and in the end it is failed.

Departure from what is usual elsewhere (Kubernetes: 10 s doubling to 5 minutes, reset after 10
minutes, 6 retries of a job): none.
"""

from __future__ import annotations

from evenshare_core.domain.ids import JobId
from evenshare_core.domain.values import Value
from evenshare_core.units import SECOND_US

FIRST_US = 10 * SECOND_US
LONGEST_US = 300 * SECOND_US
# A process that ran for so long was lost by bad luck.
STEADY_US = 600 * SECOND_US
# So many losses in a row fail the job.
LIMIT = 6


class Backoff(Value, frozen=True, array_like=True):
    """A job that may not start before `until_us`, after `losses` in a row."""

    job: JobId
    until_us: int
    losses: int


def losses_after(losses: int, held_us: int) -> int:
    """Return the losses in a row when one more came after `held_us` of a lease."""
    return 0 if held_us >= STEADY_US else losses + 1


def wait_us(losses: int) -> int:
    """Return how long a job waits after so many losses in a row; 0 after none."""
    if losses <= 0:
        return 0
    return min(FIRST_US << min(losses - 1, LIMIT), LONGEST_US)


def is_given_up(losses: int) -> bool:
    """Whether so many losses in a row fail the job."""
    return losses >= LIMIT
