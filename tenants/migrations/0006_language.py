"""Add the language that a person chose for pages and messages."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = (("tenants", "0005_job_lists"),)

    operations = (
        migrations.AddField(
            "user",
            "language",
            models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="The language of pages; empty: the browser's.",
                max_length=7,
            ),
        ),
    )
