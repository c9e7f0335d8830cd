"""New pools decide by another policy; those that exist keep theirs. Nothing changes in the tables.

docs/adr/0153 says why.
"""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("scheduling", "0021_lease_bounds")]

    operations = [
        migrations.AlterField(
            model_name="pool",
            name="policy",
            field=models.SlugField(default="evenshare", max_length=31),
        ),
    ]
