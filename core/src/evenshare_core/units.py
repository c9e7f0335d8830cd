"""Units of integers; a name ends in its unit, such as `lease_us` or `price_micro`.

| suffix | unit | used for |
|---|---|---|
| `_us` | a microsecond | durations, and instants since 1970 |
| `_micro` | a millionth of a credit, a GPU or a point | money, prices, shares, rewards |
| `_milli` | a thousandth | speeds over the slowest GPU type, theta, progress |

No other module writes these factors (tests/architecture/test_units.py).
"""

MICROSECOND_NS = 1000
MILLISECOND_NS = 1_000_000
MILLISECOND_US = 1000
SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 3600 * SECOND_US

CREDIT_MICRO = 1_000_000
GPU_MICRO = 1_000_000
REWARD_MICRO = 1_000_000  # millionths of one point; a met deadline has 100 points

# 1 in thousandths; as a speed, that of a job's slowest GPU type and of jobs without a profile.
ONE_MILLI = 1000

# The maximum of counts and amounts that users enter.
COUNT_MAX = 1_000_000
# The maximum memory that users may enter for a node or for all GPUs of a job: 100 TB.
MEMORY_MB_MAX = 100 * COUNT_MAX
