"""Add a person's identity at the site's OpenID Connect provider."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = (("tenants", "0006_language"),)

    operations = (
        migrations.AddField(
            "user",
            "identity",
            models.CharField(
                blank=True,
                default=None,
                help_text="Issuer and subject at the OpenID Connect provider, with a space"
                " between.",
                max_length=800,
                null=True,
                unique=True,
            ),
        ),
    )
