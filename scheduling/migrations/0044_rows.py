"""No JSON of another shape than code reads, no word that is none of its column's choices.

The last migration of the app: `hold_choices` holds the choices as they are here.
"""

from django.db import migrations

from tenants.shapes import (
    AMOUNT, FIGURE, NUMBER, OBJECT, TEXT, ByName, ByWord, Fields, Kind, Many, Shape, Whole,
    hold_choices, hold_condition, hold_names, hold_shapes,
)  # fmt: skip

COUNTS = ByName(Whole())
TEXTS = Many(TEXT)
ENTITLED = Fields(capacity=Whole(), quotas=ByName(Many(Kind(("number", "null")), 2, 2)))
SPANS = Many(Many(Whole(-(2**63)), 2, 2))
COUNTED = (
    "granted", "renewed", "ended", "waiting", "waiting_gpus", "capacity", "used", "idle",
)  # fmt: skip
SHARE = Fields(
    **dict.fromkeys(("got", "own", "quota", "demand", "borrowed", "deserved"), NUMBER),
    tenant=Whole(),
    gpu_type=TEXT,
)
HOLDING = Fields(own=Whole(), borrowed=Whole(), price=AMOUNT)
EVENTS = {
    "entitled": Fields(gpu_type=TEXT, capacity=Whole(), quotas=ENTITLED.fields["quotas"]),
    "granted": HOLDING,
    "started": HOLDING,
    "renewed": HOLDING,
    "stop_asked": Fields(reason=TEXT),
    "ended": Fields(reason=TEXT),
    "priced": Fields(
        valid_from_round=Whole(),
        prices=Many(
            Fields(
                gpu_type=TEXT,
                price=AMOUNT,
                base=AMOUNT,
                theta=AMOUNT,
                used=Whole(),
                capacity=Whole(),
            )
        ),
    ),
    "traded": Fields(bought_type=TEXT, sold_type=TEXT, buyer=Whole(), seller=Whole()),
}
PRICE = Fields(
    gpu_type=TEXT, base_micro=Whole(), price_micro=Whole(), theta_milli=Whole(), used=Whole(),
    capacity=Whole(),
)  # fmt: skip
FINDING = Fields(number=Whole(), text=TEXT, kind=TEXT)

SHAPES: dict[tuple[str, str], Shape | ByWord] = {
    ("pool", "options"): OBJECT,
    ("pool", "executor_options"): OBJECT,
    ("profile", "speedups"): COUNTS,
    ("profile", "declared"): COUNTS,
    ("profile", "measured"): ByName(
        Fields(speed_milli=Whole(), spread_milli=Whole(), reports=Whole())
    ),
    ("virtualspeeds", "speedups"): COUNTS,
    ("runrecord", "runs"): Many(Fields(held=COUNTS, declared_s=Kind(("number", "null")))),
    ("measurementnote", "data"): OBJECT,
    ("job", "command"): TEXTS,
    ("job", "environment"): ByName(TEXT),
    ("job", "deadline_steps"): Many(Many(FIGURE, 2, 2), 1, 16),
    ("job", "utility"): Fields(kind=TEXT),
    ("job", "progress"): OBJECT,
    ("jobanswer", "leases"): SPANS,
    ("jobanswer", "blocked"): SPANS,
    ("arrival", "extra"): OBJECT,
    ("roundsealing", "findings"): Many(FINDING),
    ("metrichistory", "points"): Many(Many(NUMBER, 2, 2)),
    ("stopforecast", "families"): COUNTS,
    ("lease", "placement"): Many(Many(Whole(), 2, 2)),
    ("leaseevent", "data"): ByWord("kind", EVENTS),
    ("executorhealth", "missing"): ByName(TEXT),
    ("executorhealth", "accepted"): TEXTS,
    ("startforecast", "facts"): OBJECT,
    ("priceforecast", "p10"): Many(NUMBER),
    ("priceforecast", "p50"): Many(NUMBER),
    ("priceforecast", "p90"): Many(NUMBER),
    ("round", "summary"): Fields(reasons=ByName(NUMBER), **dict.fromkeys(COUNTED, NUMBER)),
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
    dependencies = (("scheduling", "0043_verification_unproven"),)

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
