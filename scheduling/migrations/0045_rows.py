"""No JSON of another shape than code reads, no word that is none of its column's choices.

The last migration of the app: `hold_choices` holds the choices as they are here.
"""

from django.db import migrations

from tenants.shapes import (
    AMOUNT, FIGURE, NUMBER, OBJECT, TEXT, ByName, ByWord, WithFields, Typed, Many, JsonShape, WholeNumber,
    hold_choices, hold_condition, hold_names, hold_shapes,
)  # fmt: skip

COUNTS = ByName(WholeNumber())
TEXTS = Many(TEXT)
ENTITLED = WithFields(capacity=WholeNumber(), quotas=ByName(Many(Typed(("number", "null")), 2, 2)))
SPANS = Many(Many(WholeNumber(-(2**63)), 2, 2))
COUNTED = (
    "granted", "renewed", "ended", "waiting", "waiting_gpus", "capacity", "used", "idle",
)  # fmt: skip
SHARE = WithFields(
    **dict.fromkeys(("got", "own", "quota", "demand", "borrowed", "deserved"), NUMBER),
    tenant=WholeNumber(),
    gpu_type=TEXT,
)
HOLDING = WithFields(own=WholeNumber(), borrowed=WholeNumber(), price=AMOUNT)
EVENTS = {
    "entitled": WithFields(gpu_type=TEXT, capacity=WholeNumber(), quotas=ENTITLED.fields["quotas"]),
    "granted": HOLDING,
    "started": HOLDING,
    "renewed": HOLDING,
    "stop_asked": WithFields(reason=TEXT),
    "ended": WithFields(reason=TEXT),
    "priced": WithFields(
        valid_from_round=WholeNumber(),
        prices=Many(
            WithFields(
                gpu_type=TEXT,
                price=AMOUNT,
                base=AMOUNT,
                theta=AMOUNT,
                used=WholeNumber(),
                capacity=WholeNumber(),
            )
        ),
    ),
    "traded": WithFields(
        bought_type=TEXT, sold_type=TEXT, buyer=WholeNumber(), seller=WholeNumber()
    ),
}
# Rows of before have no theta.
PRICE = WithFields(
    gpu_type=TEXT, base_micro=WholeNumber(), price_micro=WholeNumber(), used=WholeNumber(),
    capacity=WholeNumber(),
)  # fmt: skip
FINDING = WithFields(number=WholeNumber(), text=TEXT, kind=TEXT)

SHAPES: dict[tuple[str, str], JsonShape | ByWord] = {
    ("pool", "options"): OBJECT,
    ("pool", "executor_options"): OBJECT,
    ("profile", "speedups"): COUNTS,
    ("profile", "declared"): COUNTS,
    ("profile", "measured"): ByName(
        WithFields(speed_milli=WholeNumber(), spread_milli=WholeNumber(), reports=WholeNumber())
    ),
    ("virtualspeeds", "speedups"): COUNTS,
    ("runrecord", "runs"): Many(WithFields(held=COUNTS, declared_s=Typed(("number", "null")))),
    ("measurementnote", "data"): OBJECT,
    ("job", "command"): TEXTS,
    ("job", "environment"): ByName(TEXT),
    ("job", "deadline_steps"): Many(Many(FIGURE, 2, 2), 1, 16),
    ("job", "utility"): WithFields(kind=TEXT),
    ("job", "progress"): OBJECT,
    ("jobanswer", "leases"): SPANS,
    ("jobanswer", "blocked"): SPANS,
    ("arrival", "extra"): OBJECT,
    ("roundsealing", "findings"): Many(FINDING),
    ("roundsealing", "queues"): Many(
        WithFields(round=WholeNumber(), jobs=Typed(("array", "null")), text=TEXT)
    ),
    ("metrichistory", "points"): Many(Many(NUMBER, 2, 2)),
    ("stopforecast", "families"): COUNTS,
    ("lease", "placement"): Many(Many(WholeNumber(), 2, 2)),
    ("leaseevent", "data"): ByWord("kind", EVENTS),
    ("executorhealth", "missing"): ByName(TEXT),
    ("executorhealth", "accepted"): TEXTS,
    ("startforecast", "facts"): OBJECT,
    ("priceforecast", "p10"): Many(NUMBER),
    ("priceforecast", "p50"): Many(NUMBER),
    ("priceforecast", "p90"): Many(NUMBER),
    ("round", "summary"): WithFields(reasons=ByName(NUMBER), **dict.fromkeys(COUNTED, NUMBER)),
    ("round", "shares"): Many(SHARE),
    ("round", "superseded"): Many(OBJECT),
    ("round", "certificate"): OBJECT,
    ("roundscrub", "damaged"): Many(FINDING),
    ("roundstate", "prices"): Many(PRICE),
    ("roundstate", "entitled"): ByName(ENTITLED),
    ("simulation", "options"): OBJECT,
    ("simulation", "result"): OBJECT,
}


class Migration(migrations.Migration):
    dependencies = (("scheduling", "0044_queue_first_jobs"),)

    operations = (
        hold_shapes("scheduling", SHAPES),
        hold_choices("scheduling"),
        hold_names("scheduling"),
        # The clock goes on from there, and no calendar goes beyond the year 9999.
        hold_condition(
            "scheduling_poolclock",
            "anchors_within_reach",
            "anchor_pool < '5000-01-01' AND anchor_wall < '5000-01-01'",
        ),
    )
