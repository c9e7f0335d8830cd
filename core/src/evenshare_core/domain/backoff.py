"""Back-off of jobs whose processes are lost repeatedly. All functions are pure.

A process is lost if it ends without an exit report, because its supervisor was killed or its node
vanished. After a single loss the job starts again. A job that is lost soon after each start takes
GPUs from others and does no work. It therefore waits longer each time and fails in the end. The
numbers are those of Kubernetes: 10 s doubling to 5 minutes, reset after 10 minutes, 6 retries of a
job.
"""

from evenshare_core.domain.ids import JobId
from evenshare_core.domain.values import Value
from evenshare_core.units import SECOND_US

FIRST_US = 10 * SECOND_US
LONGEST_US = 300 * SECOND_US
# If the process ran for this long, its loss does not count.
STEADY_US = 600 * SECOND_US
# A job fails after this number of consecutive losses.
LIMIT = 6


class Backoff(Value, frozen=True, array_like=True):
    """A job that may not start before `until_us`, after `losses` consecutive losses."""

    job: JobId
    until_us: int
    losses: int


def losses_after(losses: int, held_us: int) -> int:
    """Return the consecutive losses after the loss of a lease that lasted `held_us`."""
    return 0 if held_us >= STEADY_US else losses + 1


def wait_us(losses: int) -> int:
    """Return how long a job with `losses` consecutive losses waits, in us; 0 without losses."""
    if losses <= 0:
        return 0
    return min(FIRST_US << min(losses - 1, LIMIT), LONGEST_US)


def is_given_up(losses: int) -> bool:
    """Return whether a job fails after this number of consecutive losses."""
    return losses >= LIMIT
