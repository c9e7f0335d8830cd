"""The places of a tenant's own jobs, implemented from docs/recompute/every-policy.md."""

# mypy: ignore-errors


def placed(s, jobs, going_on):
    """Return the jobs that may start or run, by number, with their new places."""
    ranks, going = {row.job: row.priority for row in s.ranks}, {row.job for row in going_on}
    new = dict(jobs)
    for tenant in {job.tenant for job in s.jobs if job.id in ranks}:
        own = [job for n, job in jobs.items() if job.tenant == tenant and n not in going]
        own.sort(key=lambda job: (-ranks.get(job.id, 0), *job.arrival))
        last_us = last = 0
        for job, place in zip(own, sorted(job.submitted_us for job in own), strict=True):
            place_us = max(place, last_us)
            if place_us == last_us and job.id < last and place_us < s.at_us:
                place_us += 1
            new[job.id] = type(job)(job, submitted_us=place_us)
            last_us, last = place_us, job.id
    return new
