"""A temporary Postgres for a benchmark, with the portal's migrations."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

# a log line per round would add to the measured time
os.environ.setdefault("LOG_LEVEL", "WARNING")

from portal.embedded.folders import Folders
from portal.embedded.postgres import Postgres, create_database

# `plugin` sets the URL of the temporary database before settings are read
from tests import plugin, scope

if TYPE_CHECKING:
    from tenants.models import Tenant


@contextmanager
def temporary_database(*, durable: bool = False) -> Iterator[None]:
    """Start a database and set up Django on it; import the portal's modules only inside the block.

    If `durable`, the database writes to disk before it answers, as in production.
    """
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.site.settings")
    import django

    django.setup()
    from portal.site import prepare

    scope.begin()
    services = plugin.SERVICES
    if durable:
        services.postgres = Postgres(Folders(services.folder, services.folder / "run"))
    services.start()
    try:
        with services.postgres.connect() as connection:
            create_database(connection, plugin.SHARED)
        prepare.migrate()
        yield
    finally:
        services.stop()


def token_of(tenant: Tenant) -> str:
    """Create a member of a tenant; return the secret of the member's token."""
    from django.utils import timezone

    from tenants.models import Membership, User
    from tenants.tokens import Scope, create_token

    user = User.objects.create(username="ada")
    Membership.objects.create(user=user, tenant=tenant, role=Membership.Role.MEMBER)
    return create_token(user=user, name="t", scopes=Scope, days=1, now=timezone.now())[1]
