"""Test that production refuses unsafe settings, one line per problem; the demo is not checked."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.core.checks import Tags, run_checks

from evenshare_core.policies import registry
from portal.site.checks import (
    packages_load,
    refuse_unsafe,
    settings_problems,
)
from portal.site.environment import SettingError
from scheduling.engine.executors import base
from tests.tools import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]
FIX_KEY = "make one with `python3 -c 'import secrets; print(secrets.token_urlsafe(48))'`"
FIX_STORAGE = (
    "name the class of an installed storage, and set its arguments in ROUNDS_STORAGE_OPTIONS"
)
NO_STORAGE = "Could not find backend 'storages.backends.s3.NoSuch': No module named 'storages'"
NO_OPTION = "FileSystemStorage.__init__() got an unexpected keyword argument 'secret'"
SAFE = {
    "EVENSHARE_MODE": "production",
    "SECRET_KEY": "b3J8fQx1Zk7mT0aYvC5nR2wLpH9sUe4dGi6o-KXy",
    "ALLOWED_HOSTS": "gpu.invalid",
    "BEHIND_TLS_PROXY": "1",
    "DATABASE_URL": "postgres://app:word@/evenshare?host=/run/postgresql",
    "OWNER_DATABASE_URL": "postgres://owner:word@/evenshare?host=/run/postgresql",
    "REDIS_URL": "redis://:word@valkey:6379/0",
    "EVENSHARE_INSTALLATION": "north",
    "METRICS_TOKEN": "Zk7mT0aYvC5nR2wLpH9sUe4d",
}

# A change of the safe environment, and the one line that it causes.
UNSAFE: dict[str, tuple[dict[str, str], str]] = {
    "an unknown mode": (
        {"EVENSHARE_MODE": "prod"},
        "EVENSHARE_MODE must be demo or production, not 'prod'",
    ),
    "a mode in capitals": (
        {"EVENSHARE_MODE": "Production"},
        "EVENSHARE_MODE must be demo or production, not 'Production'",
    ),
    "debug pages": ({"DEBUG": "1"}, "DEBUG is on: its pages show settings and code; unset it"),
    "no secret key": ({"SECRET_KEY": ""}, "SECRET_KEY must be set"),
    "a short secret key": (
        {"SECRET_KEY": "x7Bq"},
        f"SECRET_KEY has 4 characters, 32 are the least; {FIX_KEY}",
    ),
    "a secret key of one repeated letter": (
        {"SECRET_KEY": "k" * 50},
        f"SECRET_KEY has only 1 different characters; {FIX_KEY}",
    ),
    "Django's example key": (
        {"SECRET_KEY": "django-insecure-7x!m2v9q#c4b8n1z5k3j6h0g"},
        f"SECRET_KEY has 'django-insecure-' in it, as an example's would; {FIX_KEY}",
    ),
    "a placeholder key": (
        {"SECRET_KEY": "please-ChangeMe-before-you-use-it-1234567"},
        f"SECRET_KEY has 'change' in it, as an example's would; {FIX_KEY}",
    ),
    "an inner network that is none": (
        {"WEBHOOK_INNER": "ntfy.invalid, 10.0.0.1/8"},
        (
            "WEBHOOK_INNER is not a list of hosts: '10.0.0.1/8' is no host name and no network;"
            " name hosts and networks"
        ),
    ),
    "a denied network that is none": (
        {"WEBHOOK_DENIED": "198.51.100.0/24, ntfy.invalid"},
        (
            "WEBHOOK_DENIED is not a list of networks: 'ntfy.invalid' is no network; name networks"
            " such as 192.0.2.0/24"
        ),
    ),
    "links without TLS": (
        {"SITE_URL": "http://gpu.invalid"},
        "SITE_URL is not the address of a TLS proxy; use https://",
    ),
    "a mail server without a scheme": (
        {"SMTP_URL": "mail.invalid"},
        "SMTP_URL must look like smtp+starttls://user:password@host:587",
    ),
    "a storage class that is not installed": (
        {"ROUNDS_STORAGE": "storages.backends.s3.NoSuch"},
        f"ROUNDS_STORAGE cannot be used ({NO_STORAGE}); {FIX_STORAGE}",
    ),
    "an unknown option of the storage class": (
        {"ROUNDS_STORAGE_OPTIONS": '{"secret": "canary-3"}'},
        f"ROUNDS_STORAGE cannot be used ({NO_OPTION}); {FIX_STORAGE}",
    ),
    "options that are not JSON": (
        {"ROUNDS_STORAGE_OPTIONS": "bucket=canary-4"},
        'ROUNDS_STORAGE_OPTIONS must be a JSON object, such as {"bucket_name": "rounds"}',
    ),
    "rounds kept for too few days": (
        {"ROUNDS_KEEP_DAYS": "89"},
        "ROUNDS_KEEP_DAYS must be at least 90: rounds must be recomputable for that long",
    ),
    "no host": (
        {"ALLOWED_HOSTS": " , "},
        (
            "ALLOWED_HOSTS is empty: all requests would be refused; list the hosts, separated by"
            " commas"
        ),
    ),
    "every host": (
        {"ALLOWED_HOSTS": "gpu.invalid,*"},
        "ALLOWED_HOSTS has '*': a forged Host header would pass; name the hosts",
    ),
    "every host of a top-level domain": (
        {"ALLOWED_HOSTS": "gpu.invalid,.org"},
        "ALLOWED_HOSTS has '.org': a forged Host header would pass; name the hosts",
    ),
    "every host of a second-level public domain": (
        {"ALLOWED_HOSTS": ".co.uk"},
        "ALLOWED_HOSTS has '.co.uk': a forged Host header would pass; name the hosts",
    ),
    "a host with a wildcard": (
        {"ALLOWED_HOSTS": "*.gpu.invalid"},
        "ALLOWED_HOSTS has '*.gpu.invalid': a forged Host header would pass; name the hosts",
    ),
    "a dot as the host": (
        {"ALLOWED_HOSTS": "."},
        "ALLOWED_HOSTS has '.': a forged Host header would pass; name the hosts",
    ),
    "no TLS proxy": (
        {"BEHIND_TLS_PROXY": "0"},
        (
            "BEHIND_TLS_PROXY is off: passwords and sessions would travel in the clear; serve "
            "through a TLS proxy that sets X-Forwarded-Proto, and set it to 1"
        ),
    ),
    "forms from plain HTTP": (
        {"CSRF_TRUSTED_ORIGINS": "https://gpu.invalid,http://gpu.invalid"},
        "CSRF_TRUSTED_ORIGINS has 'http://gpu.invalid': plain HTTP; use its https:// address",
    ),
    "forms from any host": (
        {"CSRF_TRUSTED_ORIGINS": "https://*"},
        ("CSRF_TRUSTED_ORIGINS has 'https://*': forms of any host would pass; name the origins"),
    ),
    "forms from any host of a domain": (
        {"CSRF_TRUSTED_ORIGINS": "https://*.invalid"},
        (
            "CSRF_TRUSTED_ORIGINS has 'https://*.invalid': forms of any host would pass; name"
            " the origins"
        ),
    ),
    "a form origin with a path": (
        {"CSRF_TRUSTED_ORIGINS": "https://gpu.invalid/login/"},
        (
            "CSRF_TRUSTED_ORIGINS has 'https://gpu.invalid/login/': not an origin; use only"
            " https:// and the host"
        ),
    ),
    "a form origin without a scheme": (
        {"CSRF_TRUSTED_ORIGINS": "gpu.invalid"},
        "CSRF_TRUSTED_ORIGINS has 'gpu.invalid': plain HTTP; use its https:// address",
    ),
    "the key of a demo": (
        {"SECRET_KEY": "evenshare-demo-b3J8fQx1Zk7mT0aYvC5nR2wLpH9sUe4d"},
        f"SECRET_KEY is the key of a demo, whose sessions it would accept; {FIX_KEY}",
    ),
    "no database": ({"DATABASE_URL": ""}, "DATABASE_URL must be set"),
    "the superuser": (
        {"DATABASE_URL": "postgres://postgres:word@/evenshare?host=/run/postgresql"},
        (
            "DATABASE_URL names the role 'postgres': a superuser may change the books; "
            "make a role that owns nothing (deploy/roles.sql)"
        ),
    ),
    "the same role for app and owner": (
        {"OWNER_DATABASE_URL": SAFE["DATABASE_URL"]},
        (
            "OWNER_DATABASE_URL and DATABASE_URL name the same role 'app': who owns a table may "
            "drop its guards; make two roles (deploy/roles.sql)"
        ),
    ),
    "a remote database without TLS": (
        {"DATABASE_URL": "postgres://app:word@db.invalid/evenshare"},
        (
            "DATABASE_URL goes to db.invalid with sslmode=prefer: it may go in the clear; "
            "add ?sslmode=verify-full (or require), or use a socket"
        ),
    ),
    "a remote owner connection without TLS": (
        {"OWNER_DATABASE_URL": "postgres://owner:word@10.0.0.7/evenshare?sslmode=allow"},
        (
            "OWNER_DATABASE_URL goes to 10.0.0.7 with sslmode=allow: it may go in the clear; "
            "add ?sslmode=verify-full (or require), or use a socket"
        ),
    ),
    "a broker without a password": (
        {"REDIS_URL": "redis://valkey:6379/0"},
        (
            "REDIS_URL has no password: anyone who reaches the port may stop all rounds; set"
            " `requirepass` and use redis://:password@host:port/0, or a unix socket"
        ),
    ),
    "a remote broker without TLS": (
        {"REDIS_URL": "redis://:word@broker.invalid/0"},
        "REDIS_URL goes to broker.invalid in the clear: its password too; use rediss://",
    ),
    "metrics behind a guessable token": (
        {"METRICS_TOKEN": "0123012301230123"},
        f"METRICS_TOKEN has only 4 different characters; {FIX_KEY}",
    ),
    "metrics behind a short token": (
        {"METRICS_TOKEN": "Zk7mT0"},
        "METRICS_TOKEN must have at least 16 characters",
    ),
    "an installation name with other characters": (
        {"EVENSHARE_INSTALLATION": "north; rm -rf"},
        (
            "EVENSHARE_INSTALLATION is 'north; rm -rf': executors get it as a part of "
            "names; use 1 to 20 letters and digits"
        ),
    ),
    "a connection pool too small for pages": (
        {"DATABASE_POOL_SIZE": "5"},
        (
            "DATABASE_POOL_SIZE is 5: log-ins, probes and open pages need 5 connections;"
            " use 6 or more"
        ),
    ),
    "a text in place of a number": (
        {"DATABASE_POOL_SIZE": "many"},
        "DATABASE_POOL_SIZE must be a whole number, not 'many'",
    ),
}

ALSO_SAFE: dict[str, dict[str, str]] = {
    "unchanged settings": {},
    "a process without the owner's URL": {"OWNER_DATABASE_URL": ""},
    "a database by verified TLS": {
        "DATABASE_URL": "postgres://app:word@db.invalid/evenshare?sslmode=verify-full"
    },
    "a database on this machine": {"DATABASE_URL": "postgres://app:word@127.0.0.1/evenshare"},
    "a mail server": {"SMTP_URL": "smtps://me:word@mail.invalid"},
    "a broker on a socket": {"REDIS_URL": "unix:///run/valkey.sock?db=0"},
    "a broker by TLS": {"REDIS_URL": "rediss://:word@broker.invalid/0"},
    "no metrics": {"METRICS_TOKEN": ""},
    "an origin with a port": {"CSRF_TRUSTED_ORIGINS": "https://gpu.invalid:8443"},
    "all hosts of a domain": {"ALLOWED_HOSTS": ".gpu.invalid"},
}


def refusals(monkeypatch: pytest.MonkeyPatch, changed: dict[str, str]) -> list[str]:
    """Return the refusals for an environment, from its real settings."""
    for name in ("DEBUG", "CSRF_TRUSTED_ORIGINS", "DATABASE_POOL_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (SAFE | changed).items():
        monkeypatch.setenv(name, value)
    try:
        read = runpy.run_path(str(ROOT / "portal" / "site" / "settings.py"))
    except SettingError as error:
        return [str(error)]
    return list(settings_problems(SimpleNamespace(**read)))


class TestEnvironment:
    @pytest.mark.parametrize(("changed", "line"), UNSAFE.values(), ids=UNSAFE)
    def test_unsafe_setting_is_reported(
        self, monkeypatch: pytest.MonkeyPatch, changed: dict[str, str], line: str
    ) -> None:
        assert refusals(monkeypatch, changed) == [line]

    @pytest.mark.parametrize("changed", ALSO_SAFE.values(), ids=ALSO_SAFE)
    def test_safe_settings_are_accepted(
        self, monkeypatch: pytest.MonkeyPatch, changed: dict[str, str]
    ) -> None:
        assert refusals(monkeypatch, changed) == []

    def test_secret_key_of_demo_folder_is_reported(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """The keys of older demos are not marked as demo keys."""
        (tmp_path / "secret_key").write_text(SAFE["SECRET_KEY"])
        (line,) = refusals(monkeypatch, {"EVENSHARE_DATA_DIR": str(tmp_path)})
        assert line == UNSAFE["the key of a demo"][1]

    def test_two_problems_give_two_lines(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert len(refusals(monkeypatch, {"DEBUG": "1", "ALLOWED_HOSTS": "*"})) == 2

    def test_lines_contain_no_secrets(self, monkeypatch: pytest.MonkeyPatch) -> None:
        changed = {name: change[name] for change, _ in UNSAFE.values() for name in change}
        changed |= {"EVENSHARE_MODE": "production", "METRICS_TOKEN": "", "SECRET_KEY": "canary-1"}
        changed |= {"DATABASE_URL": "postgres://postgres:canary-2@db/x", "DATABASE_POOL_SIZE": "1"}
        # Reading the settings fails because of these three.
        changed |= {"SMTP_URL": "smtp://me:canary-4@mail.invalid"}
        changed |= {"ROUNDS_KEEP_DAYS": "90", "ROUNDS_STORAGE_OPTIONS": '{"secret": "canary-3"}'}
        lines = refusals(monkeypatch, changed)
        assert len(lines) > 5
        assert "canary" not in "".join(lines)

    @pytest.mark.parametrize("name", ["SECURE_SSL_REDIRECT", "SESSION_COOKIE_SECURE"])
    def test_weakened_setting_in_code_is_reported(
        self, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        assert refusals(monkeypatch, {}) == []
        read = runpy.run_path(str(ROOT / "portal" / "site" / "settings.py"))
        (line,) = settings_problems(SimpleNamespace(**read | {name: False}))
        assert line == f"{name} is off in portal/site/settings.py: plain HTTP is served; turn it on"


class TestProcesses:
    """Web, workers, beat and commands are refused before they import most of the portal."""

    @pytest.mark.parametrize(
        "words",
        [
            ["-m", "portal.site.prepare"],
            ["-c", "import portal.site.asgi"],
            ["manage.py", "migrate", "--database", "owner"],
            ["manage.py", "shell", "-c", "1"],
            ["-m", "celery", "-A", "portal.site.celery", "worker"],
            ["-m", "celery", "-A", "portal.site.celery", "beat", "--schedule", "/dev/null/none"],
        ],
        ids=["prepare", "asgi", "migrate", "shell", "worker", "beat"],
    )
    def test_exit_with_line_per_problem(self, words: list[str]) -> None:
        unsafe = {"DEBUG": "1", "BEHIND_TLS_PROXY": "0"}
        done = subprocess.run(
            [sys.executable, *words],
            cwd=ROOT,
            env={**os.environ, **SAFE, **unsafe},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 1
        wanted = [f"refused: {UNSAFE[key][1]}" for key in ("debug pages", "no TLS proxy")]
        assert done.stderr.splitlines() == wanted

    def test_exit_with_one_line_for_unknown_mode(self) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "portal.site.prepare", "--check"],
            cwd=ROOT,
            env={**os.environ, **SAFE, "EVENSHARE_MODE": "prod"},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert (done.returncode, done.stderr) == (
            1,
            "refused: EVENSHARE_MODE must be demo or production, not 'prod'\n",
        )


def test_url_checks_pass() -> None:
    assert run_checks(tags=[Tags.urls]) == []


def test_policy_that_fails_to_load_is_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.FAULTS, "toy", "policy 'toy' of acme 1.2 does not load: why")
    assert [warning.msg for warning in packages_load()] == list(registry.FAULTS.values())


def test_executor_that_fails_to_load_is_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("ray", "nowhere_at_all:RayExecutor", base.GROUP.name)
    monkeypatch.setitem(base.EXECUTORS, "ray", entry)
    (warning,) = packages_load()
    assert "'ray' of nowhere_at_all:RayExecutor does not load: ModuleNotFound" in warning.msg


def test_no_findings_refuse_nothing() -> None:
    refuse_unsafe([])
