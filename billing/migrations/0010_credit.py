"""One credit limit, requests to transfer credits, and what settled hours cost by day.

A limit stood in two places: an account's held transfers, a budget's held rounds. The stricter one
stays, in the budget, and the database copies it to the account whenever it changes. Every tenant's
account has a budget from here on.
"""

import uuid

import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models

import billing.models
from tenants.bounds import bound_columns
from tenants.row_security import OF_TENANT, secure_rows

MERGE = """
INSERT INTO tenants_budget (tenant_id, book, spendable, reserved)
SELECT a.tenant_id, b.slug, a.balance, 0
FROM billing_account a JOIN billing_book b ON b.id = a.book_id
WHERE a.tenant_id IS NOT NULL
ON CONFLICT (tenant_id, book) DO NOTHING;

-- LEAST leaves out what is null: the stricter limit, or the only one.
UPDATE tenants_budget budget SET credit_limit = least(budget.credit_limit, a.credit_limit)
FROM billing_account a JOIN billing_book b ON b.id = a.book_id
WHERE a.tenant_id = budget.tenant_id AND b.slug = budget.book AND a.credit_limit IS NOT NULL;

UPDATE billing_account a
SET credit_limit = budget.credit_limit,
    overrun = greatest(0, -(a.balance + budget.credit_limit))
FROM tenants_budget budget, billing_book b
WHERE b.id = a.book_id AND budget.tenant_id = a.tenant_id AND budget.book = b.slug;

INSERT INTO tenants_dailyspend (tenant_id, book, day, amount)
SELECT line.tenant_id, b.slug, (line.hour AT TIME ZONE 'UTC')::date, sum(line.amount)
FROM billing_usageline line
JOIN billing_book b ON b.id = line.book_id
JOIN billing_metercursor cursor ON cursor.pool_id = line.pool_id
WHERE line.amount > 0 AND line.hour < cursor.settled_until
GROUP BY 1, 2, 3;

-- References of the new rows are looked at now: a table that waits for that takes no trigger.
SET CONSTRAINTS ALL IMMEDIATE;
SET CONSTRAINTS ALL DEFERRED;
"""

# Run as the owner: the application's role may not write an account's limit.
COPY_LIMIT = """
CREATE FUNCTION billing_copy_limit() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF TG_RELID <> 'public.tenants_budget'::regclass THEN
        RAISE EXCEPTION 'limits follow budgets alone' USING ERRCODE = 'restrict_violation';
    END IF;
    UPDATE billing_account a
    SET credit_limit = NEW.credit_limit,
        overrun = greatest(0, -(a.balance + NEW.credit_limit))
    FROM billing_book b
    WHERE b.id = a.book_id AND b.slug = NEW.book AND a.tenant_id = NEW.tenant_id;
    RETURN NULL;
END
$$;
REVOKE EXECUTE ON FUNCTION billing_copy_limit() FROM PUBLIC;
CREATE TRIGGER billing_budget_opened AFTER INSERT ON tenants_budget
    FOR EACH ROW EXECUTE FUNCTION billing_copy_limit();
CREATE TRIGGER billing_budget_limit AFTER UPDATE OF credit_limit ON tenants_budget
    FOR EACH ROW WHEN (OLD.credit_limit IS DISTINCT FROM NEW.credit_limit)
    EXECUTE FUNCTION billing_copy_limit();

CREATE OR REPLACE FUNCTION billing_open_at_zero() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    IF NEW.balance <> 0 OR NEW.overrun <> 0 THEN
        RAISE EXCEPTION 'an account opens with a balance of 0'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'account_opens_at_zero';
    END IF;
    NEW.credit_limit := (
        SELECT budget.credit_limit FROM tenants_budget budget
        JOIN billing_book b ON b.slug = budget.book
        WHERE b.id = NEW.book_id AND budget.tenant_id = NEW.tenant_id
    );
    RETURN NEW;
END
$$;
REVOKE EXECUTE ON FUNCTION billing_open_at_zero() FROM PUBLIC;
"""

DROP_COPY_LIMIT = """
DROP TRIGGER billing_budget_limit ON tenants_budget;
DROP TRIGGER billing_budget_opened ON tenants_budget;
DROP FUNCTION billing_copy_limit();
"""


def revoke_limit(_apps, schema_editor):  # type: ignore[no-untyped-def]  # Django's signature
    """Take the right to write an account's limit from the application's role."""
    role = getattr(settings, "APP_DB_ROLE", "")
    if not role:
        return
    quoted = schema_editor.quote_name(role)
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT current_user = %s", [role])
        if not cursor.fetchone()[0]:
            cursor.execute(f"REVOKE UPDATE (credit_limit) ON billing_account FROM {quoted}")


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0009_surcharge"),
        ("tenants", "0011_budget_periods"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AlterField(
            "transfer",
            "code",
            models.CharField(
                choices=[
                    ("usage", "borrowed GPU-time of an hour"),
                    ("allowance", "credits given by the operator"),
                    ("transfer", "credits given to another tenant"),
                    ("correction", "correction of an earlier transfer"),
                ],
                max_length=16,
            ),
        ),
        migrations.RunSQL(MERGE, migrations.RunSQL.noop),
        migrations.RunSQL(COPY_LIMIT, DROP_COPY_LIMIT),
        migrations.RunPython(revoke_limit, migrations.RunPython.noop),
        migrations.CreateModel(
            "TransferRequest",
            [
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("uid", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                ("amount", billing.models.CreditField()),
                ("reason", models.CharField(max_length=200)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("asked", "waits for a decision"),
                            ("approved", "approved"),
                            ("refused", "refused"),
                        ],
                        default="asked",
                        max_length=16,
                    ),
                ),
                (
                    "asked_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("decided_at", models.DateTimeField(null=True)),
                ("answer", models.CharField(blank=True, default="", max_length=200)),
                *(
                    (
                        name,
                        models.ForeignKey(
                            null=name in ("decided_by", "transfer"),
                            on_delete=django.db.models.deletion.PROTECT,
                            related_name="+",
                            to=to,
                        ),
                    )
                    for name, to in (
                        ("asked_by", settings.AUTH_USER_MODEL),
                        ("book", "billing.book"),
                        ("decided_by", settings.AUTH_USER_MODEL),
                        ("receiver", "tenants.tenant"),
                        ("tenant", "tenants.tenant"),
                        ("transfer", "billing.transfer"),
                    )
                ),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(amount__gt=0, amount__lt=billing.models.LIMIT),
                        name="transfer_request_above_0",
                    ),
                    models.CheckConstraint(
                        condition=~models.Q(tenant=models.F("receiver")),
                        name="transfer_request_to_another",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            state="asked",
                            decided_by__isnull=True,
                            decided_at__isnull=True,
                            transfer__isnull=True,
                        )
                        | models.Q(
                            state="approved",
                            decided_by__isnull=False,
                            decided_at__isnull=False,
                            transfer__isnull=False,
                        )
                        | models.Q(
                            state="refused",
                            decided_by__isnull=False,
                            decided_at__isnull=False,
                            transfer__isnull=True,
                        ),
                        name="transfer_request_is_decided_whole",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(decided_by__isnull=True)
                        | ~models.Q(decided_by=models.F("asked_by")),
                        name="transfer_request_by_two_people",
                    ),
                ],
                "indexes": [
                    models.Index(fields=["tenant", "-id"], name="transfer_request_by_tenant"),
                    models.Index(fields=["state", "-id"], name="transfer_request_by_state"),
                ],
            },
        ),
        secure_rows({"billing_transferrequest": OF_TENANT}),
        bound_columns("billing"),
    ]
