"""What a pool's engine says of its nodes, apart from what operators said, and both together."""

from django.db import migrations, models

from tenants.bounds import bound_columns


class Migration(migrations.Migration):
    dependencies = (("scheduling", "0038_executor_health"),)

    operations = (
        migrations.AddField(
            model_name="node",
            name="engine_state",
            field=models.CharField(
                choices=[("up", "up"), ("drained", "drained"), ("down", "down")],
                db_default="up",
                default="up",
                max_length=16,
            ),
        ),
        migrations.AddField(
            model_name="node",
            name="engine_reason",
            field=models.CharField(blank=True, db_default="", default="", max_length=200),
        ),
        migrations.AddField(
            model_name="node",
            name="engine_since",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="node",
            name="engine_trouble",
            field=models.CharField(blank=True, db_default="", default="", max_length=200),
        ),
        migrations.AddField(
            model_name="poolfence",
            name="nodes_asked_at",
            field=models.DateTimeField(
                help_text="When the engine was last asked for its nodes (wall time).", null=True
            ),
        ),
        migrations.AddField(
            model_name="node",
            name="effective_state",
            field=models.GeneratedField(
                db_persist=True,
                expression=models.Case(
                    models.When(models.Q(("state", "up"), _negated=True), then=models.F("state")),
                    models.When(engine_state="drained", then=models.Value("drained")),
                    models.When(engine_state="down", then=models.Value("lost")),
                    default=models.Value("up"),
                ),
                output_field=models.CharField(
                    choices=[("up", "up"), ("drained", "drained"), ("lost", "lost")], max_length=16
                ),
            ),
        ),
        bound_columns("scheduling"),
    )
