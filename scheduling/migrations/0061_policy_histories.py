"""Add replays of a pool's last days under several policies, which tenants may see."""

from django.db import migrations, models
from django.db.models import Q

from tenants.shapes import hold_condition

KINDS = ("next_hours", "lease_lengths", "history")


class Migration(migrations.Migration):
    dependencies = (("scheduling", "0060_sessions"),)

    operations = (
        migrations.AlterField(
            "simulation",
            "kind",
            models.CharField(
                max_length=16,
                choices=[(kind, kind.replace("_", " ")) for kind in KINDS],
                default="next_hours",
                db_default="next_hours",
            ),
        ),
        migrations.AddField(
            "simulation", "is_shown", models.BooleanField(default=False, db_default=False)
        ),
        migrations.AddConstraint(
            "simulation",
            models.CheckConstraint(
                condition=Q(is_shown=False) | Q(kind="history", state="done"),
                name="simulation_shown_is_a_finished_replay",
            ),
        ),
        migrations.AddIndex(
            "simulation",
            models.Index(
                fields=["pool", "-id"], name="simulation_shown", condition=Q(is_shown=True)
            ),
        ),
        hold_condition("scheduling_simulation", "kind_known", f"kind IN {KINDS}"),
    )
