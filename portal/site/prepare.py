"""Update the database: grants, migrations, then the commands of AFTER_MIGRATE.

It also collects the demo's static files.

It is a separate process (`python -m portal.site.prepare`) that ends before the portal starts: the
supervisor itself has neither Django nor a connection. In production it refuses an unsafe database
before it changes anything; `--check` stops there, and needs no owner.
"""

import os
import sys
from importlib import import_module
from importlib.util import find_spec

from django.db import connections

from portal.site.environment import SettingError

# Idempotent management commands, in order; missing ones are skipped.
AFTER_MIGRATE = ("seed_demo",)
LOGINS_MARK = "logins: "


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.site.settings")
    import django

    try:
        django.setup()
    except SettingError as error:
        sys.exit(f"refused: {error}")
    if "--check" in sys.argv[1:]:
        from portal.site.checks import refuse_unsafe_serving

        refuse_unsafe_serving()
        return
    refuse_unsafe_database()
    migrate()
    collect_static()
    after_migrate()
    for line in pools_without_rounds():
        print(line)
    for line in (*demo_logins(), *cluster_steps()):
        print(LOGINS_MARK + line)


def refuse_unsafe_database() -> None:
    """End this process if the database is too old to migrate, or unsafe in production."""
    from django.conf import settings

    from portal.site.checks import age_problems, database_problems, refuse_unsafe

    if settings.PRODUCTION:
        refuse_unsafe(database_problems())
    refuse_unsafe(age_problems())


def migrate() -> None:
    """Migrate as the owner; the app role can use new tables from the start.

    The grants come first, as default privileges. So a migration that then revokes a right
    (append-only tables) wins.
    """
    from django.core.management import call_command

    grant_to_app_role()
    call_command("migrate", database="owner", verbosity=0, interactive=False)


def grant_to_app_role() -> None:
    """Grant the app role rights on the rows of all future tables of the owner."""
    from django.conf import settings

    owner = connections["owner"]
    if owner.settings_dict["USER"] == settings.APP_DB_ROLE:
        return
    with owner.cursor() as cursor:
        app = owner.ops.quote_name(settings.APP_DB_ROLE)
        cursor.execute(f"GRANT USAGE ON SCHEMA public TO {app}")
        for rights, kind in (
            ("SELECT, INSERT, UPDATE, DELETE", "TABLES"),
            ("USAGE, SELECT", "SEQUENCES"),
        ):
            cursor.execute(
                f"ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT {rights} ON {kind} TO {app}"
            )


def collect_static() -> None:
    """Collect the demo's static files as in production."""
    from portal.site.collected import collect

    collect()


def pools_without_rounds() -> list[str]:
    """Return the pools whose policy or executor no package provides."""
    from scheduling.engine.installed import missing_part
    from scheduling.models import Pool

    pools = Pool.objects.using("owner").order_by("name").values_list("name", "policy", "executor")
    return [
        f"pool {name}: no round is decided: {why}"
        for name, policy, executor in pools
        if (why := missing_part(policy, executor))
    ]


def after_migrate() -> None:
    from django.conf import settings
    from django.core.management import call_command, get_commands

    if settings.PRODUCTION:
        return
    known = get_commands()
    for name in AFTER_MIGRATE:
        if name in known:
            call_command(name)


def demo_logins() -> list[str]:
    """Return the logins that `tenants.services.tenants.demo_logins()` lists for newcomers."""
    if find_spec("tenants.services.tenants") is None:
        return []
    tell = getattr(import_module("tenants.services.tenants"), "demo_logins", None)
    return list(tell()) if tell else []


def cluster_steps() -> list[str]:
    """Return first steps with the Slurm cluster of `make run-slurm`, if it runs."""
    from django.conf import settings

    from portal.demo.slurm_pool import first_steps

    return [] if settings.PRODUCTION else first_steps(settings.DEMO_SLURM_CONF)


if __name__ == "__main__":
    main()
