"""A temporary Postgres for a benchmark, with the portal's migrations."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

# a log line per round would add to the measured time
os.environ.setdefault("LOG_LEVEL", "WARNING")

from portal.embedded.folders import Folders
from portal.embedded.postgres import APP_ROLE, OWNER_ROLE, Postgres, create_database
from portal.embedded.valkey import Valkey

# `plugin` sets the URL of the temporary database before settings are read
from tests import plugin, scope

if TYPE_CHECKING:
    from tenants.models import Tenant


@contextmanager
def temporary_database(*, durable: bool = False, kept: Path | None = None) -> Iterator[bool]:
    """Start a database and set up Django on it; import the portal's modules only inside the block.

    If `durable`, the database writes to disk before it answers, as in production. If `kept`, its
    files stay in this folder; the value is whether an earlier run has filled them.
    """
    if kept is not None:
        _keep_in(kept)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.site.settings")
    import django

    django.setup()
    from portal.site import prepare

    scope.begin()
    services = plugin.SERVICES
    if durable:
        services.postgres = Postgres(Folders(services.folder, services.folder / "run"))
    is_filled = (services.folder / "filled").exists()
    services.start(migrated=kept is None)
    try:
        if not is_filled:
            with services.postgres.connect() as connection:
                create_database(connection, plugin.SHARED)
        prepare.migrate()
        yield is_filled
    finally:
        if kept is None:
            services.stop()
        else:
            services.end()


def keep_filled() -> None:
    """Write the database's rows to its files; a later run with the same folder starts with them."""
    with plugin.SERVICES.postgres.connect() as connection:
        connection.execute("CHECKPOINT")
    (plugin.SERVICES.folder / "filled").touch()


def _keep_in(folder: Path) -> None:
    """Put the servers' files into a folder; what an unfinished run left there is removed."""
    services = plugin.SERVICES
    shutil.rmtree(services.folder, ignore_errors=True)
    if not (folder / "filled").exists():
        shutil.rmtree(folder, ignore_errors=True)
    (folder / "run").mkdir(mode=0o700, parents=True, exist_ok=True)
    folders = Folders(folder, folder / "run")
    services.folder = folder
    services.postgres, services.valkey = Postgres(folders, durable=False), Valkey(folders)
    os.environ["EVENSHARE_DATA_DIR"] = str(folder)
    os.environ["REDIS_URL"] = services.valkey.url
    os.environ["DATABASE_URL"] = services.postgres.url(APP_ROLE, plugin.SHARED)
    os.environ["OWNER_DATABASE_URL"] = services.postgres.url(OWNER_ROLE, plugin.SHARED)


def token_of(tenant: Tenant) -> str:
    """Create a member of a tenant; return the secret of the member's token."""
    from django.utils import timezone

    from tenants.models import Membership, User
    from tenants.tokens import Scope, create_token

    user = User.objects.create(username="ada")
    Membership.objects.create(user=user, tenant=tenant, role=Membership.Role.MEMBER)
    return create_token(user=user, name="t", scopes=Scope, days=1, now=timezone.now())[1]
