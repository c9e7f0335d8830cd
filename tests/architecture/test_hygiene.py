"""Test reasons of skips, complete migrations, locks without URLs, and true documents."""

import ast
import re
import tomllib
from pathlib import Path

import pytest
from django.core.management import call_command

from .sources import ROOT, files, name_of, python_files, tree

LOCKS = [ROOT / "requirements" / f"{name}.txt" for name in ("core", "demo", "dev", "uv")]
CLIMB = re.compile(r"(?<![\w./*])(?:\.\./)+[\w-]+")
TEXTS = {"", ".md", ".py", ".toml", ".yml", ".html", ".css", ".in"}
SUPPRESSION = re.compile(r"#\s*(?:noqa|type:\s*ignore)(?P<rest>.*)$")


class TestLockFile:
    @pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: str(lock.name))
    def test_contains_no_index_or_url(self, lock: Path) -> None:
        assert not re.search(r"https?:|^--|file:", lock.read_text(), re.MULTILINE)

    @pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: str(lock.name))
    def test_has_hash_for_every_package(self, lock: Path) -> None:
        entries = re.split(r"\n(?=[a-z])", re.sub(r"(?m)^#.*\n", "", lock.read_text()).strip())
        assert entries
        assert [entry for entry in entries if "--hash=sha256:" not in entry] == []

    def test_is_subset_of_next_larger_lock(self) -> None:
        core, demo, dev = (
            set(re.findall(r"(?m)^[a-z][^ ]*==[^ ]+", lock.read_text())) for lock in LOCKS[:3]
        )
        assert core < demo < dev

    def test_contains_solver_for_verification(self) -> None:
        project = tomllib.loads((ROOT / "core" / "pyproject.toml").read_text())
        [solver] = [
            name
            for name in project["project"]["optional-dependencies"]["verify"]
            if name.startswith("highspy")
        ]
        assert f"\n{solver} " in LOCKS[0].read_text()


class TestSkips:
    def test_always_give_reason(self) -> None:
        silent = []
        for path in python_files("tests/"):
            for node in ast.walk(tree(path)):
                if isinstance(node, ast.Attribute) and re.fullmatch(
                    r"pytest\.mark\.(skip|xfail)", ast.unparse(node)
                ):
                    silent.append(f"{name_of(path)}:{node.lineno}")
                if isinstance(node, ast.Call):
                    function = ast.unparse(node.func)
                    explained = node.args or any(k.arg == "reason" for k in node.keywords)
                    if function in ("pytest.skip", "pytest.mark.skip") and not explained:
                        silent.append(f"{name_of(path)}:{node.lineno}")
                    if function == "pytest.mark.skipif" and len(node.keywords) == 0:
                        silent.append(f"{name_of(path)}:{node.lineno}")
        called = {
            f"{name_of(path)}:{node.func.lineno}"
            for path in python_files("tests/")
            for node in ast.walk(tree(path))
            if isinstance(node, ast.Call) and (node.args or node.keywords)
        }
        assert [place for place in silent if place not in called] == []


class TestSuppressions:
    def test_name_rule_and_reason(self) -> None:
        """The forms are `# noqa: S603 - why` and `# type: ignore[rule] # why`."""
        pattern = re.compile(
            r"#\s*(noqa: [A-Z]+\d+(, [A-Z]+\d+)* - \S|type: ignore\[[a-z-, ]+\]\s+# \S)"
        )
        bare = [
            f"{name_of(path)}: {line.strip()}"
            for path in python_files()
            if path != Path(__file__)
            for line in path.read_text().splitlines()
            if SUPPRESSION.search(line) and not pattern.search(line)
        ]
        assert bare == []


class TestModels:
    @pytest.mark.django_db(databases=["default", "owner"])
    def test_have_no_missing_migrations(self) -> None:
        call_command("makemigrations", check=True, dry_run=True, verbosity=1)


class TestCheckout:
    def test_contains_all_relative_paths(self) -> None:
        """Every relative path in a text is a part of the checkout."""
        outside = [
            f"{name_of(path)}: {climb}"
            for path in files()
            if path.suffix in TEXTS
            for climb in CLIMB.findall(path.read_text())
            if not (path.parent / climb).resolve().is_relative_to(ROOT)
        ]
        assert outside == []
