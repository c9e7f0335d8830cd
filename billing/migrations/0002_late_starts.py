"""A kind of transfers: the operator's credit for a promised start that was late."""

from django.db import migrations, models

from tenants.shapes import (
    AMOUNT,
    TEXT,
    ByWord,
    WholeNumber,
    WithFields,
    condition_of,
    hold_condition,
)

CODES = {
    "usage": "borrowed GPU-time of an hour",
    "allowance": "credits given by the operator",
    "transfer": "credits given to another tenant",
    "correction": "correction of an earlier transfer",
    "late_start": "credit for a late start",
}
SHAPES = ByWord(
    "code",
    {
        "late_start": WithFields(
            job=TEXT,
            gpu_type=TEXT,
            gpus=WholeNumber(1),
            rate=AMOUNT,
            promised_round=WholeNumber(),
            round=WholeNumber(),
            latest_at=TEXT,
            until=TEXT,
        ),
    },
)


class Migration(migrations.Migration):
    dependencies = (("billing", "0001_squashed_0016_numbers"),)

    operations = (
        migrations.AlterField(
            "transfer", "code", models.CharField(choices=list(CODES.items()), max_length=16)
        ),
        migrations.AddConstraint(
            "transfer",
            models.CheckConstraint(
                condition=~models.Q(code="late_start")
                | models.Q(pool__isnull=False, tenant__isnull=False, entry_count=2),
                name="transfer_late_start_of_a_tenant",
            ),
        ),
        hold_condition(
            "billing_transfer", "code_known", f"code IN {tuple(CODES)}"
        ),
        hold_condition(
            "billing_transfer", "late_start_shaped", condition_of("data", SHAPES)
        ),
    )
