"""A budget says what it is for a period, and by how much it was exceeded; spend is kept by day.

What is promised today beyond a credit limit becomes `overrun`, so that the new constraint holds
from the first moment. Whoever changes a limit later has the database note it in the same way.
"""

import django.db.models.deletion
from django.db import migrations, models

from tenants.bounds import bound_columns
from tenants.row_security import OF_TENANT, secure_rows

FILL = """
UPDATE tenants_budget SET overrun = greatest(0, reserved - spendable - credit_limit)
WHERE credit_limit IS NOT NULL AND reserved > spendable + credit_limit;
"""

LIMITS = """
CREATE FUNCTION tenants_note_overrun() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.overrun := greatest(0, NEW.reserved - NEW.spendable - NEW.credit_limit);
    RETURN NEW;
END
$$;
CREATE TRIGGER tenants_budget_limit BEFORE UPDATE OF credit_limit ON tenants_budget
    FOR EACH ROW WHEN (OLD.credit_limit IS DISTINCT FROM NEW.credit_limit)
    EXECUTE FUNCTION tenants_note_overrun();
"""

DROP_LIMITS = """
DROP TRIGGER tenants_budget_limit ON tenants_budget;
DROP FUNCTION tenants_note_overrun();
"""


class Migration(migrations.Migration):
    dependencies = [("tenants", "0010_sharing")]

    operations = [
        migrations.AddField(
            "budget",
            "overrun",
            models.DecimalField(db_default=0, decimal_places=6, default=0, max_digits=20),
        ),
        migrations.AddField(
            "budget",
            "period_amount",
            models.DecimalField(blank=True, decimal_places=6, max_digits=20, null=True),
        ),
        migrations.AddField(
            "budget",
            "period_kind",
            models.CharField(
                choices=[("month", "month"), ("quarter", "quarter"), ("custom", "custom")],
                db_default="month",
                default="month",
                max_length=16,
            ),
        ),
        migrations.AddField(
            "budget",
            "period_action",
            models.CharField(
                choices=[("warn", "warn"), ("block", "block")],
                db_default="warn",
                default="warn",
                max_length=16,
            ),
        ),
        migrations.AddField(
            "budget", "period_starts_at", models.DateTimeField(blank=True, null=True)
        ),
        migrations.AddField("budget", "period_ends_at", models.DateTimeField(blank=True, null=True)),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
        migrations.AddConstraint(
            "budget",
            models.CheckConstraint(
                condition=models.Q(overrun__gte=0), name="budget_overrun_at_least_0"
            ),
        ),
        migrations.AddConstraint(
            "budget",
            models.CheckConstraint(
                condition=models.Q(credit_limit__isnull=True)
                | models.Q(
                    reserved__lte=models.F("spendable")
                    + models.F("credit_limit")
                    + models.F("overrun")
                ),
                name="budget_promises_within_credit",
            ),
        ),
        migrations.AddConstraint(
            "budget",
            models.CheckConstraint(
                condition=models.Q(period_amount__isnull=True)
                | models.Q(
                    period_amount__gt=0,
                    period_kind__in=["month", "quarter"],
                    period_starts_at__isnull=True,
                    period_ends_at__isnull=True,
                )
                | models.Q(
                    period_amount__gt=0,
                    period_kind="custom",
                    period_starts_at__isnull=False,
                    period_ends_at__gt=models.F("period_starts_at"),
                ),
                name="budget_period_is_whole",
            ),
        ),
        migrations.RunSQL(LIMITS, DROP_LIMITS),
        migrations.CreateModel(
            "DailySpend",
            [
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("book", models.SlugField(max_length=31)),
                ("day", models.DateField()),
                ("amount", models.DecimalField(decimal_places=6, max_digits=20)),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="tenants.tenant",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=["tenant", "book", "day"], name="spend_once_per_day"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(amount__gte=0), name="spend_at_least_0"
                    ),
                ]
            },
        ),
        secure_rows({"tenants_dailyspend": OF_TENANT}),
        bound_columns("tenants"),
    ]
