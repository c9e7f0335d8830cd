"""Three kinds of events: promised starts with a credit, late starts, and ended promises."""

from django.db import migrations, models

from tenants.shapes import (
    AMOUNT,
    TEXT,
    ByWord,
    JsonShape,
    Typed,
    WholeNumber,
    WithFields,
    condition_of,
    hold_condition,
)

KINDS = (
    "entitled", "granted", "started", "renewed", "stop_asked", "ended", "priced", "traded",
    "contradicted", "promised", "late_start", "promise_ended",
)  # fmt: skip
PROMISE: dict[str, JsonShape] = {"gpu_type": TEXT, "gpus": WholeNumber(1), "rate": AMOUNT}
SHAPES = ByWord(
    "kind",
    {
        "promised": WithFields(**PROMISE, due_us=WholeNumber()),
        "late_start": WithFields(
            **PROMISE,
            promised_round=WholeNumber(),
            latest_us=WholeNumber(),
            until_us=WholeNumber(),
            started=Typed(("boolean",)),
        ),
        "promise_ended": WithFields(due_us=WholeNumber(), lost_node=Typed(("boolean",))),
    },
)


class Migration(migrations.Migration):
    dependencies = (("scheduling", "0049_unread_columns"),)

    operations = (
        migrations.AlterField(
            "leaseevent",
            "kind",
            models.CharField(
                choices=[(kind, kind.replace("_", " ").title()) for kind in KINDS], max_length=16
            ),
        ),
        migrations.AddIndex(
            "leaseevent",
            models.Index(
                fields=["pool", "at", "number"],
                name="event_late_start_by_time",
                condition=models.Q(kind="late_start"),
            ),
        ),
        hold_condition("scheduling_leaseevent", "kind_known", f"kind IN {KINDS}"),
        hold_condition("scheduling_leaseevent", "promises_shaped", condition_of("data", SHAPES)),
    )
