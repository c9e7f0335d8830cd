"""The order that a tenant wishes among its own jobs."""

from evenshare_core.domain.ids import JobId
from evenshare_core.domain.values import Value

# The priority of a job that takes no part in its tenant's exchange; above all priorities.
KEEPS_PLACE = 1000


class JobRank(Value, frozen=True, array_like=True):
    """A job whose tenant orders its own jobs; a job without a row has rank (0, 0).

    `priority`: higher first. `person`: the submitter's number within the tenant, if the tenant's
    people share equally; else 0. A job with the priority `KEEPS_PLACE` keeps its place. Disclosed
    rounds contain the resulting order as priorities, and no people.
    """

    job: JobId
    priority: int = 0
    person: int = 0
