"""Safety checks: a production with unsafe settings prints one line per problem and ends.

Checks of settings run when this module is imported, which `PortalConfig.ready` does in every
process: web, workers, beat, any command. Checks that need the database run before migrations
(portal/site/prepare.py, `manage.py migrate`).

Each line names the variable, the reason and the remedy. Source: docs/operations.md.
"""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import Error, Tags, register
from django.core.checks import Warning as CheckWarning
from django.core.files.storage.handler import InvalidStorageError, StorageHandler
from django.db import DatabaseError, OperationalError, connections

from evenshare_core.policies.registry import FAULTS
from portal.embedded.folders import DEMO_KEY_MARK
from portal.site.lanes import RESERVED
from scheduling.engine.executors.base import executor_faults, executor_traits
from scheduling.outbox.targets import TargetRules, networks_of

KEY_LENGTH = 32
# Second levels below which anyone may register a name in many countries: `.co.uk` is as wide as
# `.org`.
SECOND_LEVEL = ("ac", "co", "com", "edu", "gov", "net", "ne", "or", "org")
# A random key has far more distinct characters; "xxxx" and repeated "0123" have fewer.
DISTINCT = 10
# Placeholders for secrets in examples, tutorials and Django's own `startproject`.
PLACEHOLDERS = ("django-insecure-", "change", "example", "replace", "secret-key", "your-")
OLDEST_SERVER = 160000
# The last commit that has all the migrations which were squashed later.
BEFORE_SQUASHED = "9bae3794"
UTC_NAMES = ("UTC", "Etc/UTC", "GMT", "Etc/GMT", "Zulu", "Etc/Zulu", "UCT", "Etc/UCT")
VERIFIED = ("require", "verify-ca", "verify-full")
TOKEN_WORD = re.compile(r"[A-Za-z0-9]{1,20}")
HARDENED = ("SECURE_SSL_REDIRECT", "SECURE_HSTS_SECONDS", "SESSION_COOKIE_SECURE")
FIX_KEY = "make one with `python3 -c 'import secrets; print(secrets.token_urlsafe(48))'`"


def refuse(lines: Sequence[str]) -> NoReturn:
    """End this process, and print every reason on its own line."""
    sys.exit("\n".join(f"refused: {line}" for line in lines))


def refuse_unsafe(problems: Iterable[str]) -> None:
    """End this process if there are problems."""
    lines = list(problems)
    if lines:
        refuse(lines)


def refuse_unsafe_serving() -> None:
    """End a production process that would serve an unsafe database, such as a demo's."""
    if settings.PRODUCTION:
        # A server that imports its application in an event loop allows no queries there.
        with ThreadPoolExecutor(1) as beside:
            refuse_unsafe(beside.submit(_all_serving_problems).result())


@register(Tags.database)
def safe_for_production(databases: Sequence[str] | None = None, **_: Any) -> list[Error]:
    """Return the problems, as a check of `manage.py migrate` and `check --database default`."""
    if not settings.PRODUCTION or not databases:
        return []
    return [Error(line, id="portal.E001") for line in database_problems()]


@register(Tags.database)
def can_migrate(databases: Sequence[str] | None = None, **_: Any) -> list[Error]:
    """Return whether a database is too old for these migrations, as a Django check."""
    return [Error(line, id="portal.E002") for line in age_problems()] if databases else []


@register()
def packages_load(**_: Any) -> list[CheckWarning]:
    """Warn of policies and executors in installed packages that cannot be used."""
    faults = (*FAULTS.values(), *executor_faults())
    return [CheckWarning(text, id="portal.W001") for text in faults]


def settings_problems(having: Any) -> Iterator[str]:
    """Yield unsafe settings and files of the data folder; not called in a demo."""
    if having.DEBUG:
        yield "DEBUG is on: its pages show settings and code; unset it"
    yield from _key_problems("SECRET_KEY", having.SECRET_KEY)
    yield from _demo_key_problems(having.SECRET_KEY, having.FOLDERS.secret_key)
    if having.METRICS_TOKEN:
        yield from _secret_problems("METRICS_TOKEN", having.METRICS_TOKEN)
    yield from _web_problems(having)
    yield from _address_problems(having.DATABASES)
    yield from _broker_problems(having.REDIS_URL)
    yield from _message_problems(having)
    yield from _storage_problems(having)
    if not TOKEN_WORD.fullmatch(having.INSTALLATION):
        yield (
            f"EVENSHARE_INSTALLATION is {having.INSTALLATION!r}: executors get it as a part of "
            "names; use 1 to 20 letters and digits"
        )


def _message_problems(having: Any) -> Iterator[str]:
    try:
        TargetRules.of(having.WEBHOOK_INNER)
    except ValueError as error:
        yield f"WEBHOOK_INNER is not a list of hosts: {error}; name hosts and networks"
    try:
        networks_of(having.WEBHOOK_DENIED)
    except ValueError as error:
        yield (
            f"WEBHOOK_DENIED is not a list of networks: {error}; name networks such as 192.0.2.0/24"
        )
    if not having.SITE_URL.startswith("https://"):
        yield "SITE_URL is not the address of a TLS proxy; use https://"


def _storage_problems(having: Any) -> Iterator[str]:
    try:
        StorageHandler({"rounds": having.STORAGES["rounds"]})["rounds"]
    except Exception as error:  # noqa: BLE001 - each storage has its own
        # Messages of other errors may quote an option, and one may be a password.
        harmless = (InvalidStorageError, ImportError, TypeError)
        why = str(error) if isinstance(error, harmless) else type(error).__name__
        yield (
            f"ROUNDS_STORAGE cannot be used ({why}); name the class of an installed storage, and"
            " set its arguments in ROUNDS_STORAGE_OPTIONS"
        )


def _key_problems(name: str, value: str) -> Iterator[str]:
    if len(value) < KEY_LENGTH:
        yield f"{name} has {len(value)} characters, {KEY_LENGTH} are the least; {FIX_KEY}"
    else:
        yield from _secret_problems(name, value)


def _demo_key_problems(value: str, file: Path) -> Iterator[str]:
    """Refuse a demo's key: it signs sessions of demo users, and many people may read its folder."""
    try:
        of_this_demo = file.read_text()
    except OSError:
        of_this_demo = ""
    if value.startswith(DEMO_KEY_MARK) or value == of_this_demo:
        yield f"SECRET_KEY is the key of a demo, whose sessions it would accept; {FIX_KEY}"


def _secret_problems(name: str, value: str) -> Iterator[str]:
    placeholder = next((word for word in PLACEHOLDERS if word in value.lower()), None)
    if placeholder:
        yield f"{name} has {placeholder!r} in it, as an example's would; {FIX_KEY}"
    elif len(set(value)) < DISTINCT:
        yield f"{name} has only {len(set(value))} different characters; {FIX_KEY}"


def _web_problems(having: Any) -> Iterator[str]:
    if not having.ALLOWED_HOSTS:
        yield (
            "ALLOWED_HOSTS is empty: all requests would be refused; list the hosts, separated"
            " by commas"
        )
    for host in having.ALLOWED_HOSTS:
        if "*" in host or not host.strip(".") or _is_public_domain(host):
            yield f"ALLOWED_HOSTS has {host!r}: a forged Host header would pass; name the hosts"
    if having.SECURE_PROXY_SSL_HEADER is None:
        yield (
            "BEHIND_TLS_PROXY is off: passwords and sessions would travel in the clear; serve "
            "through a TLS proxy that sets X-Forwarded-Proto, and set it to 1"
        )
    for origin in having.CSRF_TRUSTED_ORIGINS:
        yield from _origin_problems(origin)
    least = having.PASSWORD_HASHES_AT_ONCE + RESERVED + 1
    if 0 < having.DATABASE_POOL_SIZE < least:
        yield (
            f"DATABASE_POOL_SIZE is {having.DATABASE_POOL_SIZE}: log-ins, probes and open pages"
            f" need {least - 1} connections; use {least} or more"
        )
    for name in HARDENED:
        if not getattr(having, name):
            yield f"{name} is off in portal/site/settings.py: plain HTTP is served; turn it on"


def _is_public_domain(host: str) -> bool:
    """Return whether an allowed host covers all hosts of a public domain such as `.org`."""
    labels = host.lower().rstrip(".").split(".")[1:]
    if not host.startswith("."):
        return False
    return len(labels) < 2 or (len(labels) == 2 and labels[0] in SECOND_LEVEL)


def _origin_problems(origin: str) -> Iterator[str]:
    name = f"CSRF_TRUSTED_ORIGINS has {origin!r}"
    parts = urlsplit(origin)
    if parts.scheme != "https":
        yield f"{name}: plain HTTP; use its https:// address"
    elif "*" in origin:
        yield f"{name}: forms of any host would pass; name the origins"
    elif not parts.hostname or parts.path or parts.query or parts.fragment:
        yield f"{name}: not an origin; use only https:// and the host"


def _address_problems(databases: dict[str, Any]) -> Iterator[str]:
    app, owner = databases["default"], databases["owner"]
    if app["USER"] in ("", "postgres"):
        yield (
            f"DATABASE_URL names the role {app['USER']!r}: a superuser may change the books; "
            "make a role that owns nothing (deploy/roles.sql)"
        )
    databases = {"DATABASE_URL": app}
    # Web and workers need no owner: only a process that has the owner's URL can use the wrong one.
    if os.environ.get("OWNER_DATABASE_URL"):
        databases["OWNER_DATABASE_URL"] = owner
        if app["USER"] == owner["USER"]:
            yield _same_role(app["USER"])
    for name, database in databases.items():
        mode = str(database["OPTIONS"].get("sslmode", "prefer"))
        if not _on_this_machine(database["HOST"]) and mode not in VERIFIED:
            yield (
                f"{name} goes to {database['HOST']} with sslmode={mode}: it may go in the clear; "
                "add ?sslmode=verify-full (or require), or use a socket"
            )


def _same_role(role: str) -> str:
    return (
        f"OWNER_DATABASE_URL and DATABASE_URL name the same role {role!r}: who owns a table may "
        "drop its guards; make two roles (deploy/roles.sql)"
    )


def _on_this_machine(host: str) -> bool:
    """Return whether a host is a socket's folder, empty (the default socket), or loopback."""
    if not host or host.startswith("/") or host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _broker_problems(url: str) -> Iterator[str]:
    broker = urlsplit(url)
    if broker.scheme == "unix":
        return
    if not broker.password:
        yield (
            "REDIS_URL has no password: anyone who reaches the port may stop all rounds; set"
            " `requirepass` and use redis://:password@host:port/0, or a unix socket"
        )
    host = broker.hostname or ""
    # A name without a dot is a container's, on a network within the machine.
    if broker.scheme != "rediss" and "." in host and not _on_this_machine(host):
        yield f"REDIS_URL goes to {host} in the clear: its password too; use rediss://"


def database_problems() -> Iterator[str]:
    """Yield unsafe facts of the database, queried as the app role. Changes nothing."""
    if not os.environ.get("OWNER_DATABASE_URL"):
        yield "OWNER_DATABASE_URL must be set: migrations run as the role that owns the tables"
    yield from serving_problems()


def age_problems() -> Iterator[str]:
    """Yield the version with which an old database must be started before this code migrates it."""
    # Imported late, because processes that only serve load no migrations.
    from django.db.migrations.loader import MigrationLoader  # noqa: PLC0415 - as said above

    try:
        has_any = _has_table("django_migrations")
        applied = set(_rows("SELECT app, name FROM django_migrations")) if has_any else set()
    except DatabaseError:
        return  # The migrations themselves fail, and report the reason.
    loader = MigrationLoader(None)
    for squashed in loader.replacements.values():
        missing = [key for key in squashed.replaces if key not in applied]
        is_gone = not loader.disk_migrations.keys() & missing
        # Django itself reports only that a migration is missing.
        if is_gone and 0 < len(missing) < len(squashed.replaces):
            yield (
                f"DATABASE_URL: the database lacks the migration {'.'.join(missing[0])}, which"
                f" this code no longer has; start commit {BEFORE_SQUASHED} on it, then this code"
            )
            return


def serving_problems(*, may_be_away: bool = False) -> Iterator[str]:
    """Yield problems of a process that only uses the database: its role and its contents.

    `may_be_away`: a server that does not answer is no problem; requests wait for it (0125).
    """
    try:
        yield from _server_problems()
        yield from _role_problems(str(settings.DATABASES["owner"]["USER"]))
        yield from _content_problems()
    except DatabaseError as error:
        if may_be_away and isinstance(error, OperationalError):
            return
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        yield f"DATABASE_URL cannot be used: {why}"


def _all_serving_problems() -> list[str]:
    """Return all problems, and close the connection of this thread."""
    try:
        return list(serving_problems(may_be_away=True))
    finally:
        connections["default"].close()


def _server_problems() -> Iterator[str]:
    ((version, timezone, encoding),) = _rows(
        "SELECT current_setting('server_version_num')::int,"
        # The default for sessions; Django's own sessions always request UTC.
        " (SELECT reset_val FROM pg_settings WHERE name = 'TimeZone'),"
        " pg_encoding_to_char(encoding) FROM pg_database WHERE datname = current_database()"
    )
    if version < OLDEST_SERVER:
        yield f"DATABASE_URL is served by PostgreSQL {version // 10000}; 16 or newer is needed"
    if timezone not in UTC_NAMES:
        yield (
            f"DATABASE_URL: the database's time zone is {timezone}, so manual reports would show"
            " wrong hours; ALTER DATABASE ... SET timezone TO 'UTC'"
        )
    if encoding != "UTF8":
        yield f"DATABASE_URL: the database's encoding is {encoding}; create it again with UTF8"


def _role_problems(owner: str) -> Iterator[str]:
    ((role, superuser, bypass, makes, owned, member, creates),) = _rows(
        "SELECT rolname, rolsuper, rolbypassrls, rolcreaterole OR rolcreatedb,"
        " (SELECT min(relname) FROM pg_class WHERE relowner = me.oid),"
        # A process without the owner's URL might not know the owner.
        " COALESCE((SELECT bool_or(pg_has_role(me.oid, oid, 'MEMBER')) FROM pg_roles"
        "   WHERE rolname = %s AND oid <> me.oid), false),"
        " has_schema_privilege(me.oid, 'public', 'CREATE')"
        " FROM pg_roles AS me WHERE rolname = current_user",
        [owner],
    )
    fix = "make a role that owns nothing (deploy/roles.sql)"
    if superuser:
        yield f"DATABASE_URL: the role {role!r} is a superuser; {fix}"
        return  # A superuser has every other right as well.
    if bypass:
        yield f"DATABASE_URL: the role {role!r} has BYPASSRLS; ALTER ROLE ... NOBYPASSRLS"
    if makes:
        yield (
            f"DATABASE_URL: the role {role!r} may make roles or databases; "
            "ALTER ROLE ... NOCREATEROLE NOCREATEDB"
        )
    if owned:
        yield f"DATABASE_URL: the role {role!r} owns {owned!r}, so it may drop its guards; {fix}"
    if member:
        yield f"DATABASE_URL: the role {role!r} is a member of {owner!r}; REVOKE that"
    if creates:
        yield (
            f"DATABASE_URL: the role {role!r} may make tables; "
            "REVOKE CREATE ON SCHEMA public FROM it and from PUBLIC"
        )


def _content_problems() -> Iterator[str]:
    """Yield unsafe contents left by a former demo or an operator; none in an empty database."""
    if _has_table("scheduling_pool"):
        pools = dict(_rows("SELECT name, executor FROM scheduling_pool ORDER BY name"))
        traits = {executor: executor_traits(executor) for executor in pools.values()}
        for name, executor in pools.items():
            if not traits[executor].runs_as_portal:
                continue
            yield (
                f"pool {name!r} has the executor {executor}: its jobs would run as the portal's "
                "own user; choose another, in a database that never held the demo"
            )
        if settings.INSTALLATION == "es" and not all(one.is_exclusive for one in traits.values()):
            yield (
                "EVENSHARE_INSTALLATION is the default 'es', and a pool runs on a shared engine;"
                " give this installation a unique name"
            )
    if _has_table("tenants_user"):
        yield from _demo_people()


def _demo_people() -> Iterator[str]:
    # Imported late: AppConfig.ready imports this module before models exist.
    from django.contrib.auth.hashers import check_password  # noqa: PLC0415 - as said above

    from portal.demo.people import DEMO_PEOPLE  # noqa: PLC0415 - as said above
    from tenants.services.tenants import DEMO_PASSWORD  # noqa: PLC0415 - as said above

    stored_rows = _rows(
        "SELECT username, password FROM tenants_user"
        " WHERE is_active AND username = ANY(%s) ORDER BY username",
        [list(DEMO_PEOPLE.values())],
    )
    for name, stored in stored_rows:
        if check_password(DEMO_PASSWORD, stored):
            yield (
                f"user {name!r} of the demo still has the demo's password, which everybody knows; "
                "use a database that never held the demo"
            )


def _has_table(name: str) -> bool:
    return _rows("SELECT to_regclass(%s) IS NOT NULL", [f"public.{name}"]) == [(True,)]


def _rows(query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    with connections["default"].cursor() as cursor:
        cursor.execute(query, values or None)
        return list(cursor.fetchall())


if settings.PRODUCTION:
    refuse_unsafe(settings_problems(settings))
