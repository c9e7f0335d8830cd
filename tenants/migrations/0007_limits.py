"""Attempts by client; buckets of rates, which survive no crash and need not."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenants", "0006_seals")]

    operations = [
        migrations.AddIndex(
            model_name="loginattempt",
            index=models.Index(fields=["address", "at"], name="attempt_by_client"),
        ),
        migrations.CreateModel(
            name="RateBucket",
            fields=[
                ("key", models.CharField(max_length=80, primary_key=True, serialize=False)),
                ("left", models.FloatField()),
                ("at", models.DateTimeField()),
            ],
        ),
        # A bucket is taken from at each submission: no write-ahead log for what may be lost.
        migrations.RunSQL(
            "ALTER TABLE tenants_ratebucket SET UNLOGGED",
            "ALTER TABLE tenants_ratebucket SET LOGGED",
        ),
    ]
