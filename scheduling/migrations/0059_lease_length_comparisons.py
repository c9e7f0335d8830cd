"""Add the kind of a simulation; all simulations so far are of a pool's next hours."""

from django.db import migrations, models

from tenants.shapes import hold_condition


class Migration(migrations.Migration):
    dependencies = (("scheduling", "0058_idle_gpus"),)

    operations = (
        migrations.AddField(
            "simulation",
            "kind",
            models.CharField(
                max_length=16,
                choices=(("next_hours", "next hours"), ("lease_lengths", "lease lengths")),
                default="next_hours",
                db_default="next_hours",
            ),
        ),
        migrations.AddIndex(
            "simulation",
            models.Index(
                fields=["pool", "-id"],
                name="simulation_of_lease_lengths",
                condition=models.Q(kind="lease_lengths"),
            ),
        ),
        hold_condition(
            "scheduling_simulation", "kind_known", "kind IN ('next_hours', 'lease_lengths')"
        ),
    )
