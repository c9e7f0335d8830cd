"""Reasons that the core stores with rounds in English, for catalogues: pages translate them."""

from django.utils.translation import gettext_noop

# Why a certificate does not measure a property.
UNMEASURED = (
    gettext_noop("no misreport was tried on this round"),
    gettext_noop("nobody who is owed GPUs of its quota has a job queued that fits on a node"),
    gettext_noop("nobody waits for GPUs of its quota, and nothing was borrowed in this round"),
    gettext_noop("no start was promised"),
    gettext_noop("the policy does not say what a job is worth that does not say it"),
    gettext_noop("nothing was borrowed in this round"),
    gettext_noop("nothing was traded in this round, and no trade stands"),
    gettext_noop("nobody with quota has jobs"),
    gettext_noop("only one has jobs"),
    gettext_noop("each is bounded by what its jobs can use, and not by its share"),
    gettext_noop("everybody has all GPUs that their jobs can use"),
    gettext_noop("this policy does not look at speeds"),
    gettext_noop("of no job type two GPU types that it runs on were measured"),
)
# Why a part of a decision was not applied (`SupersededReason`).
SUPERSEDED = (
    gettext_noop("the job no longer waited"),
    gettext_noop("a node was drained or lost"),
    gettext_noop("the lease had ended since the snapshot"),
    gettext_noop("its tenant's credit was promised elsewhere since the snapshot"),
    gettext_noop("its tenant's budget of the period was used up since the snapshot"),
    gettext_noop("its tenant would owe more than the books can hold"),
    gettext_noop(
        "the tenant of the job that it was preempted for lacks credit, so the lease goes on"
    ),
    gettext_noop("the job that it was preempted for no longer waited, so the lease goes on"),
    gettext_noop(
        "a node of the job that it was preempted for was drained or lost, so the lease goes on"
    ),
)
