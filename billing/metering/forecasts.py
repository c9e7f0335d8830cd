"""Counts how often posted prices were within their forecast bands."""

from django.db import connection

# A time counts once its price is known. Either a later price was posted, or the pool was checked
# later and all events are metered. `points` differs if a concurrent call has counted the same
# times.
_COUNT = """
WITH newest AS (
    SELECT greatest(
        (SELECT max(p.posted_at)
         FROM scheduling_gputype type
         CROSS JOIN LATERAL (
             SELECT posted_at FROM billing_postedprice
             WHERE pool_id = %(pool)s AND gpu_type_id = type.id ORDER BY posted_at DESC LIMIT 1
         ) p),
        (SELECT fence.last_checked_at
         FROM scheduling_poolfence fence JOIN billing_metercursor cursor USING (pool_id)
         WHERE fence.pool_id = %(pool)s AND cursor.event_number >= fence.next_event - 1)
    ) AS at
), passed AS (
    SELECT f.id, f.points, f.gpu_type_id, f.at + k * f.step_s * interval '1 second' AS at,
           (f.p10->>(k - 1))::numeric AS low, (f.p90->>(k - 1))::numeric AS high
    FROM scheduling_priceforecast f
    CROSS JOIN LATERAL generate_series(f.points + 1, jsonb_array_length(f.p10)) k
    WHERE f.pool_id = %(pool)s AND f.kept AND f.points < jsonb_array_length(f.p10)
), judged AS (
    SELECT passed.id, passed.points, count(*) AS counted,
           count(*) FILTER (
               WHERE coalesce(price.price, 0) * 1000000 BETWEEN passed.low AND passed.high
           ) AS hits
    FROM passed
    JOIN newest ON passed.at <= newest.at
    LEFT JOIN LATERAL (
        SELECT p.price FROM billing_postedprice p
        WHERE p.pool_id = %(pool)s AND p.gpu_type_id = passed.gpu_type_id
          AND p.posted_at <= passed.at
        ORDER BY p.posted_at DESC, p.valid_from_round DESC LIMIT 1
    ) price ON true
    GROUP BY passed.id, passed.points
)
UPDATE scheduling_priceforecast f
SET points = f.points + judged.counted, hits = f.hits + judged.hits
FROM judged WHERE f.id = judged.id AND f.points = judged.points
"""


def count_forecasts(pool_id: int) -> int:
    """Count hits of a pool's price forecasts for past times; return how many forecasts changed.

    Source: docs/money.md.
    """
    with connection.cursor() as cursor:
        cursor.execute(_COUNT, {"pool": pool_id})
        return int(cursor.rowcount)
