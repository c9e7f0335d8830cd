"""References to jobs, for viewers who may see them."""

from uuid import UUID

from tenants.answers import Answer


class JobRef(Answer, frozen=True, rename={"uid": "id"}):
    """A job that you may see."""

    COMPONENT = "JobRefRow"

    uid: UUID
    name: str
