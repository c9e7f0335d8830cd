"""A utility that is stored has its kind: nothing is NULL alone."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = (("scheduling", "0040_unstated_utility"),)

    operations = (
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(utility__isnull=True) | models.Q(utility__has_key="kind"),
                name="job_utility_has_its_kind",
            ),
        ),
    )
