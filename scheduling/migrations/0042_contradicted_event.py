"""A kind of events: a job's files contradict its executor."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("scheduling", "0041_utility_has_its_kind")]

    operations = [
        migrations.AlterField(
            model_name="leaseevent",
            name="kind",
            field=models.CharField(
                choices=[
                    ("entitled", "Entitled"),
                    ("granted", "Granted"),
                    ("started", "Started"),
                    ("renewed", "Renewed"),
                    ("stop_asked", "Stop Asked"),
                    ("ended", "Ended"),
                    ("priced", "Priced"),
                    ("traded", "Traded"),
                    ("contradicted", "Contradicted"),
                ],
                max_length=16,
            ),
        ),
    ]
