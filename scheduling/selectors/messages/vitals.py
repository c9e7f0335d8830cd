"""The state of the outbox, for metrics."""

from dataclasses import dataclass

from tenants.sql import fetch_rows

_VITALS = """
SELECT
  (SELECT count(*) FROM scheduling_message WHERE state = 'due'),
  (SELECT coalesce(extract(epoch FROM clock_timestamp() - min(created_at))::float8, 0)
   FROM scheduling_message WHERE state = 'due' AND due_at <= clock_timestamp()),
  (SELECT count(*) FROM scheduling_delivery
   WHERE at > clock_timestamp() - interval '1 hour' AND is_ok),
  (SELECT count(*) FROM scheduling_delivery
   WHERE at > clock_timestamp() - interval '1 hour' AND NOT is_ok),
  (SELECT count(*) FROM scheduling_subscription WHERE state = 'active' AND failures > 0),
  (SELECT count(*) FROM scheduling_subscription WHERE state = 'failed')
"""


@dataclass(frozen=True, slots=True)
class OutboxVitals:
    """Due messages, the age of the oldest, attempts in the last hour, and failing receivers."""

    due: int
    oldest_age_s: float
    sent: int
    failed: int
    failing: int
    switched_off: int


def outbox_vitals() -> OutboxVitals:
    """Return the state of the outbox. A single query."""
    (row,) = fetch_rows(_VITALS, [])
    return OutboxVitals(*row)
