"""Changes to tenants, members and quotas. Each is one transaction."""

from collections.abc import Mapping
from datetime import datetime

from django.db import transaction

from evenshare_core.money.fixed_point import largest_remainder
from tenants.models import Budget, Membership, Quota, Tenant, User
from tenants.scopes import site_scope

DEMO_PASSWORD = "evenshare-demo"  # noqa: S105 - printed on the demo's front door


def create_tenant(*, slug: str, name: str, initials: str, swatch: int, book: str) -> Tenant:
    """Create a tenant with a budget in a book; return an existing one unchanged."""
    with site_scope():
        tenant, _ = Tenant.objects.get_or_create(
            slug=slug, defaults={"name": name, "initials": initials, "swatch": swatch}
        )
        Budget.objects.get_or_create(tenant=tenant, book=book)
    return tenant


def quotas_from_weights(
    *, pool_id: int, gpu_type_id: int, capacity: int, weights: Mapping[int, int], since: datetime
) -> list[Quota]:
    """Give tenants (id -> weight) whole quotas that sum to `capacity`, by largest remainder.

    Source: LTGF eq. (6).
    """
    tenants = sorted(weights)
    shares = largest_remainder(capacity, [weights[tenant] for tenant in tenants])
    return Quota.objects.bulk_create(
        [
            Quota(
                tenant_id=tenant,
                pool_id=pool_id,
                gpu_type_id=gpu_type_id,
                gpus=gpus,
                valid_from=since,
            )
            for tenant, gpus in zip(tenants, shares, strict=True)
        ]
    )


def create_demo_user(
    *,
    username: str,
    first_name: str,
    last_name: str,
    tenant: Tenant | None,
    role: Membership.Role | None = None,
    site_role: User.SiteRole = User.SiteRole.NONE,
) -> User:
    """Create a demo person with the demo password; keep an existing one."""
    with transaction.atomic():
        user, made = User.objects.get_or_create(
            username=username,
            defaults={"first_name": first_name, "last_name": last_name, "site_role": site_role},
        )
        if made:
            user.set_password(DEMO_PASSWORD)
            user.save(update_fields=["password"])
        if tenant is not None and role is not None:
            Membership.objects.get_or_create(user=user, tenant=tenant, defaults={"role": role})
    return user


def demo_logins() -> list[str]:
    """Return lines with logins and a first submission for newcomers; empty without a demo.

    `{url}` is a placeholder for the portal's address.
    """
    people = User.objects.filter(username__in=("rosa", "mara", "otto")).order_by("id")
    lines = []
    for person in people.prefetch_related("memberships__tenant"):
        membership = person.memberships.first()
        role = f"{membership.role} of {membership.tenant.slug}" if membership else person.site_role
        lines.append(f"{person.username} / {DEMO_PASSWORD}  ({role})")
    if lines:
        lines += [
            "a first job, from another terminal:",
            f".venv/bin/evenshare login --url {{url}} --username rosa --password {DEMO_PASSWORD}",
            ".venv/bin/evenshare job submit --pool local --gpus 2 -- python examples/train.py",
        ]
    return lines
