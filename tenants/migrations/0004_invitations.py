"""Invitations to a tenant."""

import uuid

from django.conf import settings
from django.db import migrations, models
from django.db.models import Q

from tenants.bounds import bound_columns
from tenants.row_security import OF_TENANT, secure_rows
from tenants.shapes import hold_condition

ROLES = ("viewer", "member", "manager")
ID = ("id", models.BigAutoField(primary_key=True, auto_created=True, serialize=False, verbose_name="ID"))


class Migration(migrations.Migration):
    dependencies = (("tenants", "0002_squashed_0015_numbers"),)

    operations = (
        migrations.CreateModel(
            name="Invitation",
            fields=[
                ID,
                ("uid", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                ("role", models.CharField(max_length=16, choices=[(role, role) for role in ROLES])),
                ("note", models.CharField(max_length=100, default="", blank=True)),
                ("digest", models.CharField(max_length=64, unique=True)),
                ("made_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
                ("used_at", models.DateTimeField(null=True, blank=True)),
                ("revoked_at", models.DateTimeField(null=True, blank=True)),
                ("made_by", models.ForeignKey(
                    settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")),
                ("tenant", models.ForeignKey("tenants.tenant", models.CASCADE, related_name="+")),
                ("used_by", models.ForeignKey(
                    settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+")),
                ("user", models.ForeignKey(
                    settings.AUTH_USER_MODEL, models.CASCADE, null=True,
                    related_name="invitations")),
            ],
            options={
                "indexes": [
                    models.Index(
                        fields=["tenant", "-id"],
                        condition=Q(used_at__isnull=True, revoked_at__isnull=True),
                        name="invitation_open_by_tenant",
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=Q(used_at__isnull=True) | Q(revoked_at__isnull=True),
                        name="invitation_used_or_revoked",
                    ),
                ],
            },
        ),
        secure_rows({"tenants_invitation": OF_TENANT}),
        bound_columns("tenants"),
        hold_condition("tenants_invitation", "role_known", f"role IN {ROLES}"),
    )
