"""Releases held jobs whose turn has come: the next jobs of sweeps, and jobs that wait for others.

Called in each transaction that ends jobs, and in each round, which makes up for a lost step. A
caller has written the ends already. Jobs that another transaction has locked are skipped until the
next call, so there is no deadlock.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import connection

from scheduling.engine.job_holds import remove_hold
from scheduling.models import Job
from tenants.faults import fault_point
from tenants.sql import fetch_rows

Hold = Job.Hold
# The longest chain of jobs that one call cancels; the next call goes on.
CHAIN_MAX = 100

# The pool's held jobs, as the index `job_held` has them.
_HELD = """
j.pool_id = %(pool)s AND j.state = 'pending' AND NOT (j.holds = '{}'::varchar(15)[])
AND (%(tenant)s::bigint IS NULL OR j.tenant_id = %(tenant)s)
"""

_ANY_HELD = f"SELECT EXISTS (SELECT FROM scheduling_job j WHERE {_HELD})"  # noqa: S608 - no input

# A job that needs the success of a failed or cancelled job can never start.
_CANCEL_HOPELESS = f"""
WITH hopeless AS (
    SELECT d.id, d.job_id FROM scheduling_job j
    JOIN scheduling_jobdependency d ON d.job_id = j.id AND d.condition = 'after_ok'
    JOIN scheduling_job n ON n.id = d.needs_id AND n.state IN ('failed', 'cancelled')
    WHERE {_HELD} AND 'dependency' = ANY(j.holds)
    FOR NO KEY UPDATE OF j SKIP LOCKED
), marked AS (
    UPDATE scheduling_jobdependency d SET is_broken = true FROM hopeless h WHERE d.id = h.id
)
UPDATE scheduling_job j
SET state = 'cancelled', ended_at = greatest(%(at)s, submitted_at), reason_code = '',
    version = version + 1
WHERE j.id IN (SELECT job_id FROM hopeless)
"""  # noqa: S608 - no input

_LOCK_DEPENDENTS = f"""
SELECT j.id FROM scheduling_job j
WHERE {_HELD} AND 'dependency' = ANY(j.holds)
  AND NOT EXISTS (
    SELECT FROM scheduling_jobdependency d JOIN scheduling_job n ON n.id = d.needs_id
    WHERE d.job_id = j.id AND n.state <> 'succeeded'
      AND NOT (d.condition = 'after_any' AND n.state IN ('failed', 'cancelled')))
FOR NO KEY UPDATE OF j SKIP LOCKED
"""  # noqa: S608 - no input

# The number of a sweep's free jobs. A quarantined one cannot start, so it keeps no place.
_FREE = """
(SELECT count(*) FROM scheduling_job f WHERE f.sweep_id = s.id
 AND f.state IN ('pending', 'running', 'stopping') AND NOT ('sweep' = ANY(f.holds))
 AND NOT (f.state = 'pending' AND f.quarantine <> ''))
"""

# The sweeps with held jobs that have fewer free jobs than they may have.
_LOCK_SWEEPS = f"""
SELECT s.id FROM scheduling_sweep s
WHERE s.id IN (SELECT j.sweep_id FROM scheduling_job j WHERE {_HELD} AND 'sweep' = ANY(j.holds))
  AND s.at_once > {_FREE}
ORDER BY s.id FOR NO KEY UPDATE OF s
"""  # noqa: S608 - no input

# A separate statement, so that it sees what the locks have waited for.
_LOCK_CHILDREN = f"""
WITH room AS (
    SELECT s.id, greatest(s.at_once - {_FREE}, 0) AS jobs FROM scheduling_sweep s
    WHERE s.id = ANY(%(sweeps)s)
)
SELECT next.id FROM room CROSS JOIN LATERAL (
    SELECT c.id FROM scheduling_job c
    WHERE c.sweep_id = room.id AND c.state = 'pending' AND 'sweep' = ANY(c.holds)
    ORDER BY c.sweep_index LIMIT room.jobs FOR NO KEY UPDATE OF c SKIP LOCKED
) next
"""  # noqa: S608 - no input


def release_due(pool_id: int, *, at: datetime, tenant_id: int | None = None) -> int:
    """Release the pool's held jobs whose turn has come at pool time `at`; return how many.

    Jobs whose needs have failed are cancelled instead, and not counted. With `tenant_id`, only this
    tenant's jobs are considered. It takes one query if no job is held.
    """
    given: dict[str, Any] = {"pool": pool_id, "at": at, "tenant": tenant_id}
    ((any_held,),) = fetch_rows(_ANY_HELD, given)
    if not any_held:
        return 0
    with connection.cursor() as cursor:
        for _ in range(CHAIN_MAX):
            cursor.execute(_CANCEL_HOPELESS, given)
            if not cursor.rowcount:
                break
    met = _ids(_LOCK_DEPENDENTS, given)
    released = len(remove_hold(met, Hold.DEPENDENCY, at)) if met else 0
    sweeps = _ids(_LOCK_SWEEPS, given)
    next_jobs = _ids(_LOCK_CHILDREN, {"sweeps": sweeps}) if sweeps else []
    released += len(remove_hold(next_jobs, Hold.SWEEP, at)) if next_jobs else 0
    if released:
        fault_point("turns.before_commit")
    return released


def _ids(query: str, given: Mapping[str, Any]) -> list[int]:
    return [int(id_) for (id_,) in fetch_rows(query, given)]
