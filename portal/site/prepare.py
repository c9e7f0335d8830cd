"""Bring the database up to date: grants, migrations, then the commands of AFTER_MIGRATE.

The demo's static files are collected on the way.

A process of its own (`python -m portal.site.prepare`), run to its end before the portal
starts: the supervisor itself holds neither Django nor a connection. In production it
refuses what is unsafe before it changes anything; `--check` stops there, and asks no owner.
"""

import os
import sys
from importlib import import_module
from importlib.util import find_spec

from django.db import connections

from portal.site.environment import SettingError

# Idempotent management commands, in order; one that does not exist is left out.
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
    for line in pools_without_policy():
        print(line)
    for line in (*demo_logins(), *cluster_steps()):
        print(LOGINS_MARK + line)


def refuse_unsafe_database() -> None:
    """End here if a database is too old to migrate, or if that of a production is unsafe."""
    from django.conf import settings

    from portal.site.checks import age_problems, database_problems, refuse_unsafe

    if settings.PRODUCTION:
        refuse_unsafe(database_problems())
    refuse_unsafe(age_problems())


def migrate() -> None:
    """Migrate as the owner; what it makes is open to the app role from the start.

    The grants come first, as default privileges: a migration that then takes a right
    away (append-only tables) has the last word.
    """
    from django.core.management import call_command

    grant_to_app_role()
    call_command("migrate", database="owner", verbosity=0, interactive=False)


def grant_to_app_role() -> None:
    """Let the app role read and write the rows of tables that the owner will make."""
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
    """Have the demo's static files as production has them."""
    from portal.site.collected import collect

    collect()


def pools_without_policy() -> list[str]:
    """Say of which pools no round is decided, as no package brings their policy."""
    from evenshare_core.policies.registry import missing_text
    from scheduling.models import Pool

    pools = Pool.objects.using("owner").order_by("name").values_list("name", "policy")
    return [
        f"pool {name}: no round is decided: {why}"
        for name, policy in pools
        if (why := missing_text(policy))
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
    """What `tenants.services.tenants.demo_logins()` tells a newcomer to log in with."""
    if find_spec("tenants.services.tenants") is None:
        return []
    tell = getattr(import_module("tenants.services.tenants"), "demo_logins", None)
    return list(tell()) if tell else []


def cluster_steps() -> list[str]:
    """What may be done with the Slurm cluster of `make run-slurm`, where it runs."""
    from django.conf import settings

    from portal.demo.slurm_pool import first_steps

    return [] if settings.PRODUCTION else first_steps(settings.DEMO_SLURM_CONF)


if __name__ == "__main__":
    main()
