"""Check that a reader's own rows have the pseudonyms that its key gives."""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from evenshare_core.disclosure.bundle import Disclosed
from evenshare_core.disclosure.pseudonyms import job_name, profile_name, tenant_name


class OwnJob(NamedTuple):
    """A job of the reader, as submitted. `uid` has 32 hex digits; times are of pool time.

    `ended_us` is None if it has not ended. `profile` is the name of its job type, "" if it has
    none. `arrived_us` is when its last hold ended, None if it was never held.
    """

    uid: str
    tenant: str
    gpus: int
    submitted_us: int
    ended_us: int | None = None
    profile: str = ""
    arrived_us: int | None = None

    @property
    def since_us(self) -> int:
        """When it arrived in the queue after its last hold."""
        return self.submitted_us if self.arrived_us is None else self.arrived_us


class OwnNames(NamedTuple):
    """The reader's own pseudonyms on one day, and their meaning.

    `tenants` maps pseudonyms to tenants' names, and `jobs` maps pseudonyms to jobs. `all_jobs` is
    True if these are all jobs that the tenants ever submitted to the pool, so that any other job is
    not theirs. `profiles` maps a job's pseudonym to the pseudonym of its job type.
    """

    tenants: Mapping[str, str]
    jobs: Mapping[str, OwnJob]
    all_jobs: bool = False
    profiles: Mapping[str, str] = MappingProxyType({})


def own_names(
    keys: Mapping[str, bytes], jobs: Iterable[OwnJob] = (), *, all_jobs: bool = False
) -> OwnNames:
    """Return the pseudonyms of a day; `keys` has the tenant keys of the day by tenant name."""
    tenants = {tenant_name(key): tenant for tenant, key in keys.items()}
    named = {job_name(keys[job.tenant], job.uid): job for job in jobs if job.tenant in keys}
    profiles = {
        name: profile_name(keys[job.tenant], job.profile)
        for name, job in named.items()
        if job.profile
    }
    return OwnNames(tenants, named, all_jobs, profiles)


def own_numbers(disclosed: Disclosed, own: OwnNames) -> dict[int, str]:
    """Return the reader's own tenants by their numbers in the round."""
    names = enumerate(disclosed.names.tenants, start=1)
    return {number: own.tenants[name] for number, name in names if name in own.tenants}


def own_job_names(disclosed: Disclosed, own: OwnNames) -> list[str]:
    """Return the pseudonyms of the jobs that the round assigns to the reader's tenants."""
    numbers = own_numbers(disclosed, own)
    jobs = disclosed.names.jobs
    return [jobs[row.id - 1] for row in disclosed.snapshot.jobs if row.tenant in numbers]


def absent_jobs(disclosed: Disclosed, own: OwnNames, since_us: int) -> list[str]:
    """Return the reader's jobs that are missing in a round, by the first eight digits of their ids.

    A job should be in the round if it was submitted before `since_us`, the time of the previous
    round, and had not ended. Rounds may leave out jobs that cannot start because of a program
    fault.
    """
    return [job.uid[:8] for job in _absent(disclosed, own, since_us)]


def _absent(disclosed: Disclosed, own: OwnNames, since_us: int) -> Iterator[OwnJob]:
    present = set(disclosed.names.jobs)
    for pseudonym, job in own.jobs.items():
        is_over = job.ended_us is not None and job.ended_us <= disclosed.at_us
        if job.since_us < since_us and not is_over and pseudonym not in present:
            yield job


def absent_tenants(
    disclosed: Disclosed, own: OwnNames, before: Disclosed | None, own_before: OwnNames
) -> list[str]:
    """Return the reader's tenants that are missing in a round but should be in it.

    A tenant should be in it if the round should have jobs of the tenant (`absent_jobs`), or if the
    tenant had quota in the previous round. Its absence may be legitimate: the quota may be gone, or
    rounds may leave out its jobs.
    """
    present = set(disclosed.names.tenants)
    gone = {tenant for name, tenant in own.tenants.items() if name not in present}
    since_us = before.at_us if before else disclosed.at_us - disclosed.snapshot.round_us
    due = {job.tenant for job in _absent(disclosed, own, since_us)}
    if before is not None:
        numbers = own_numbers(before, own_before)
        quotas = [row.tenant for row in before.snapshot.entitlements if row.gpus]
        due |= {numbers[tenant] for tenant in quotas if tenant in numbers}
    return sorted(gone & due)


def name_breaks(disclosed: Disclosed, own: OwnNames) -> Iterator[str]:
    """Yield the reader's rows that have another tenant's pseudonym, or were changed."""
    names = disclosed.names
    for kind in ("tenants", "jobs", "leases", "profiles"):
        given = getattr(names, kind)
        if len(set(given)) != len(given):
            yield f"two of the {kind} have one pseudonym"
    numbers = own_numbers(disclosed, own)
    for row in disclosed.snapshot.jobs:
        pseudonym = names.jobs[row.id - 1]
        job, tenant = own.jobs.get(pseudonym), numbers.get(row.tenant)
        if job is None:
            if tenant is not None and own.all_jobs:
                yield f"the job {pseudonym} is said to be of {tenant}, which has none of this name"
            continue
        label = f"job {job.uid[:8]} of {job.tenant}"
        if tenant != job.tenant:
            yield f"{label} has the pseudonym of {tenant or 'another tenant'}"
        elif row.gpus != job.gpus or not _may_be_place(row.submitted_us, job, own):
            yield (
                f"{label} asked for {job.gpus} GPUs at {job.submitted_us} us of pool time;"
                f" the round has {row.gpus} at {row.submitted_us}"
            )
        elif row.profile and pseudonym in own.profiles:
            given, due = names.profiles[row.profile - 1], own.profiles[pseudonym]
            if given != due:
                yield f"{label} is of the job type {job.profile}, {due}; the round has {given}"
    yield from _lease_breaks(disclosed)


def _may_be_place(at_us: int, job: OwnJob, own: OwnNames) -> bool:
    """Return whether a round may have this time as a job's place in the queue.

    Before its last hold, the job may have arrived at any time since its submission. It may have
    exchanged its place with another job of its tenant, whose place may be later by a microsecond
    for each job in between. Without all jobs of the tenant, this cannot be excluded.
    """
    if job.submitted_us <= at_us <= job.since_us or not own.all_jobs:
        return True
    jobs = [one for one in own.jobs.values() if one.tenant == job.tenant]
    places = (place_us for one in jobs for place_us in (one.submitted_us, one.since_us))
    return any(0 <= at_us - place_us < len(jobs) for place_us in places)


def _lease_breaks(disclosed: Disclosed) -> Iterator[str]:
    owners = {row.id: row.tenant for row in disclosed.snapshot.jobs}
    for lease in disclosed.snapshot.leases:
        if owners.get(lease.job, lease.tenant) != lease.tenant:
            name = disclosed.names.leases[lease.id - 1]
            yield f"the lease {name} is of another tenant than its job"
