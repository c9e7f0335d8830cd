"""Add saved filters of job lists, and the columns that a person chose for them."""

import django.db.models.deletion
from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models

from tenants.row_security import OF_TENANT, secure_rows


class Migration(migrations.Migration):
    dependencies = (("tenants", "0004_invitations"),)

    operations = (
        migrations.AddField(
            "user",
            "job_columns",
            ArrayField(
                models.CharField(max_length=31),
                blank=True,
                db_default=[],
                default=list,
                help_text="The columns of job lists that this person chose; empty: the usual ones.",
            ),
        ),
        migrations.CreateModel(
            name="SavedFilter",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=40)),
                ("query", models.CharField(max_length=600)),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="tenants.tenant",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="saved_filters",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=["user", "tenant", "name"], name="saved_filter_once_by_name"
                    )
                ]
            },
        ),
        secure_rows({"tenants_savedfilter": OF_TENANT}),
    )
