"""What a verification did not prove, as the client said it; NULL: it was said before this.

The table is sealed again, for a seal is over all columns.
"""

from django.db import migrations, models

SEAL = "SELECT evenshare_seal_table('scheduling_verification')"


class Migration(migrations.Migration):

    dependencies = [("scheduling", "0042_contradicted_event")]

    operations = [
        migrations.RunSQL(migrations.RunSQL.noop, SEAL),
        migrations.AddField(
            model_name="verification",
            name="unproven",
            field=models.PositiveIntegerField(null=True),
        ),
        migrations.RunSQL(SEAL, migrations.RunSQL.noop),
    ]
