"""Test that links, tests, symbols, commands, layers and variables in documents exist."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from evenshare_core.policies.registry import POLICIES
from portal.demo import philly as demo
from portal.demo.people import DEMO_PEOPLE
from portal.embedded.supervisor import chosen_port
from scheduling.engine.archive import DATABASE_DAYS
from tenants.services.tenants import DEMO_PASSWORD

from .sources import CORE as CORE_NAME
from .sources import ROOT, files, name_of, python_files, tree

APPS = ("scheduling", "billing", "tenants", "portal", "evenshare_core", "evenshare_research")
# Roots of packages: the apps are in the checkout, the library is in its own folder.
ROOTS = (ROOT, ROOT / "core" / "src", ROOT / "research" / "src")
SOURCES = ("scheduling", "billing", "tenants", "portal", "core")
DOCUMENTS = [path for path in files() if path.suffix == ".md"]
# A changelog describes the past, so its names may no longer exist.
PRESENT = [path for path in DOCUMENTS if path.name != "CHANGELOG.md"]
CORE = ROOT / CORE_NAME
FEATURES = 38
CODE_SUFFIXES = (".py", ".toml", ".html", ".css", ".js", ".csv")

FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]]*\]\((?!https?:|mailto:)([^)\s]+)\)")
SYMBOL = re.compile(rf"(?:{'|'.join(APPS)})(?:\.\w+)*(?:[.:]\w+)+")
PLACE = re.compile(r"[\w.-]+(?:/[\w.*-]+)+/?|[\w-]+\.(?:py|md|toml|txt)")
TEST = re.compile(r"tests/[\w/]+\.py(?:::\w+)*")
TARGET = re.compile(r"\bmake ([a-z]+)")
COMMAND = re.compile(r"manage\.py (\w+)")
SETTING = re.compile(r"^\| `([A-Z_]+)` \|", re.MULTILINE)
SOURCE = re.compile(r"architecture, ((?:\"[^\"]+\"(?:,\s+)?)+)", re.IGNORECASE)
WORD = re.compile(r"(?:[A-Z][a-z]+){2,}(?:\.\w+)*|[a-z]+(?:_[a-z0-9]+)+")
# `docs/adr/0003`, `ADR 0003 or 0022`, `(0003, 0022)`, `0003 says why`. Excluded are numbers of
# migrations and dates, and quoted texts.
RECORD = re.compile(
    r"(?<![\w.:#%/\"-])(?<!migration )(?<!scheduling )0(?!000)[012]\d\d(?![\w%]|[-:.]\d)"
    r"|(?<=adr/)\d{4}"
)
RECORD_FILE = re.compile(r"adr/(\d{4}-[\w-]+\.md)")
TEXTS = (".py", ".md", ".in", ".toml", ".html", ".js", ".css", ".json", ".yml", ".sh")
FEATURE = re.compile(r"(\d+)\. [^:\n]+: (missing|works \(`?([^`)]+)`?\))")


def told_code(path: Path) -> list[str]:
    """Return a document's texts in backticks outside of fenced blocks."""
    return CODE.findall(FENCE.sub("", path.read_text(encoding="utf-8")))


def told(pattern: re.Pattern[str], path: Path) -> list[str]:
    """Return the texts in backticks that match as a whole."""
    return [piece for piece in told_code(path) if pattern.fullmatch(piece)]


class TestLinks:
    @pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
    def test_resolve_to_file_and_heading(self, path: Path) -> None:
        broken = []
        for target in LINK.findall(FENCE.sub("", path.read_text(encoding="utf-8"))):
            name, _, heading = target.partition("#")
            found = (path.parent / name) if name else path
            if not found.exists() or (heading and heading not in anchors(found)):
                broken.append(target)
        assert broken == []

    def test_index_lists_every_decision_record(self) -> None:
        folder = ROOT / "docs" / "adr"
        linked = set(LINK.findall((folder / "README.md").read_text(encoding="utf-8")))
        assert linked == {path.name for path in folder.glob("[0-9]*.md")}

    def test_decision_record_numbers_are_unique(self) -> None:
        numbers = [path.name[:4] for path in files() if name_of(path).startswith("docs/adr/")]
        assert len(numbers) == len(set(numbers))

    def test_decision_record_references_resolve(self) -> None:
        """Code, comments, locks and documents cite records in the forms that `RECORD` matches."""
        there = {path.name[:4] for path in (ROOT / "docs" / "adr").glob("[0-9]*.md")}
        stale: list[tuple[str, str]] = []
        for path in files():
            if path.suffix in TEXTS and "vendor" not in path.parts:
                text = path.read_text(encoding="utf-8")
                stale += [(name_of(path), n) for n in RECORD.findall(text) if n not in there]
                stale += [
                    (name_of(path), name)
                    for name in RECORD_FILE.findall(text)
                    if not (ROOT / "docs" / "adr" / name).exists()
                ]
        assert stale == []


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"(?m)^#+ (.+)$", path.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in headings}


class TestDocumentedNames:
    @pytest.mark.parametrize("path", PRESENT, ids=name_of)
    def test_of_tests_exist(self, path: Path) -> None:
        assert [name for name in told(TEST, path) if not test_exists(name)] == []

    @pytest.mark.parametrize("path", PRESENT, ids=name_of)
    def test_of_symbols_exist(self, path: Path) -> None:
        lies = [name for name in told(SYMBOL, path) if not resolves(name.replace(":", "."))]
        assert lies == []

    @pytest.mark.parametrize("path", PRESENT, ids=name_of)
    def test_of_files_exist(self, path: Path) -> None:
        top = {name_of(found).partition("/")[0] for found in files()}
        lies = [
            name
            for name in told(PLACE, path)
            if name.partition("/")[0] in top and not list(ROOT.glob(name.rstrip("/")))
        ]
        assert lies == []

    @pytest.mark.parametrize("path", PRESENT, ids=name_of)
    def test_of_commands_exist(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        targets = {
            word for line in re.findall(r"(?m)^([a-z ]+):", makefile) for word in line.split()
        }
        built_in = {"migrate", "makemigrations", "check", "shell", "help", "collectstatic"}
        ours = {found.stem for found in python_files(*SOURCES) if found.parent.name == "commands"}
        code = [*FENCE.findall(text), *told_code(path)]
        assert {name for piece in code for name in TARGET.findall(piece)} <= targets
        assert {name for piece in code for name in COMMAND.findall(piece)} <= ours | built_in

    @pytest.mark.parametrize("path", PRESENT, ids=name_of)
    def test_of_identifiers_occur_in_code(self, path: Path) -> None:
        """Documents must not name renamed symbols such as `Job.reason_code`."""
        lies = [
            name for name in told(WORD, path) if not set(name.split(".")) <= words_of_the_code()
        ]
        assert lies == []

    def test_of_cited_architecture_sections_are_headings(self) -> None:
        """`Source: architecture, "Entitlement"` must be a heading or a record's title."""
        places = [ROOT / "ARCHITECTURE.md", *(ROOT / "docs" / "adr").glob("*.md")]
        headings = [
            head
            for place in places
            for head in re.findall(r"(?m)^#+ (?:\d+ )?(.+)$", place.read_text(encoding="utf-8"))
        ]
        cited = {
            " ".join(name.split())
            for path in python_files(*SOURCES)
            for names in SOURCE.findall(path.read_text(encoding="utf-8"))
            for name in re.findall(r'"([^"]+)"', names)
        }
        assert cited
        assert {name for name in cited if not any(h.startswith(name) for h in headings)} == set()


@cache
def words_of_the_code() -> frozenset[str]:
    texts = [path.read_text(encoding="utf-8") for path in files() if path.suffix in CODE_SUFFIXES]
    return frozenset(word for text in texts for word in re.findall(r"\w+", text))


def test_exists(name: str) -> bool:
    """Return whether `tests/file.py::Class::test` exists."""
    place, *inside = name.split("::")
    path = ROOT / place
    if not path.is_file():
        return False
    body: list[ast.stmt] = tree(path).body
    for part in inside:
        found = next((node for node in body if getattr(node, "name", "") == part), None)
        if not isinstance(found, ast.ClassDef | ast.FunctionDef):
            return False
        body = found.body
    return True


# This is not a test, in spite of its name.
test_exists.__test__ = False  # type: ignore[attr-defined]  # pytest reads it


@cache
def resolves(name: str) -> bool:
    """Return whether a dotted path is a module or a name inside of one; nothing is imported."""
    parts = name.split(".")
    for root, cut in product(ROOTS, range(len(parts), 0, -1)):
        base = root.joinpath(*parts[:cut])
        for module in (base.with_suffix(".py"), base / "__init__.py"):
            if module.is_file() and is_inside(module, parts[cut:]):
                return True
    return False


def is_inside(module: Path, parts: list[str]) -> bool:
    body: list[ast.stmt] = tree(module).body
    for index, part in enumerate(parts):
        node = next((node for node in body if part in defined(node)), None)
        if node is None:
            return False
        if isinstance(node, ast.ImportFrom):
            origin = next(alias.name for alias in node.names if part in (alias.asname, alias.name))
            return resolves(".".join([str(node.module), origin, *parts[index + 1 :]]))
        body = node.body if isinstance(node, ast.ClassDef) else []
    return True


def defined(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement defines."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (target.id for target in targets if isinstance(target, ast.Name))
    elif isinstance(node, ast.ImportFrom):
        yield from (alias.asname or alias.name for alias in node.names)


class TestFeatures:
    TEXT = ROOT / "docs" / "features.md"

    def test_are_numbered_and_well_formed(self) -> None:
        lines = [line for line in self.TEXT.read_text().splitlines() if line[:1].isdigit()]
        parsed = [FEATURE.fullmatch(line) for line in lines]
        assert [line for line, found in zip(lines, parsed, strict=True) if not found] == []
        numbers = [int(found[1]) for found in parsed if found]
        assert numbers == list(range(1, FEATURES + 1))

    def test_name_existing_tests(self) -> None:
        named = [found[3] for found in FEATURE.finditer(self.TEXT.read_text()) if found[3]]
        assert [name for name in named if "::test_" not in name or not test_exists(name)] == []


class TestPolicyDocs:
    @pytest.mark.parametrize("name", sorted(POLICIES))
    def test_cover_every_option(self, name: str) -> None:
        folder = ROOT / "docs" / "policies"
        documented = {piece for path in folder.glob("*.md") for piece in told_code(path)}
        options = POLICIES[name].options_type.__struct_fields__
        assert name in documented
        assert set(options) - documented == set()


class TestArchitectureDocument:
    @pytest.mark.parametrize(
        "contract", ["apps", "core", "portal", "scheduling", "billing", "tenants"]
    )
    def test_lists_layers_in_checked_order(self, contract: str) -> None:
        """The document may omit layers that do not exist yet."""
        linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
        found = next(one for one in linter["contracts"] if one["id"] == contract)
        checked = layers(" > ".join(found["layers"]).translate(PLAIN))
        lines = [line for line in told_code(ROOT / "ARCHITECTURE.md") if " > " in line]
        base = ROOT / found["containers"][0] if "containers" in found else ROOT
        base = CORE if found.get("containers") == ["evenshare_core"] else base
        built = {name for layer in checked for name in layer if built_at(base / name)}
        for line in lines:
            names = {name for layer in layers(line) for name in layer}
            kept = [layer & names for layer in checked]
            if built <= names and layers(line) == [layer for layer in kept if layer]:
                return
        pytest.fail(f"no line tells these layers: {checked}")

    def test_lists_each_file_of_path_once(self) -> None:
        text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
        steps = re.findall(r"(?m)^\d+\. `([^`]+)`: \w", text)
        assert len(steps) > 40
        assert len(steps) == len(set(steps))

    def test_names_every_package(self) -> None:
        text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
        packages = {
            name_of(path.parent)
            for path in python_files(*(f"{app}/" for app in SOURCES))
            if path.name == "__init__.py" and path.parent.parent.parent in (ROOT, CORE.parent)
        }
        silent = {p for p in packages if not p.endswith(("/migrations", "/management"))}
        assert {p for p in silent if f"`{p}/`" not in text} == set()


# The marks of import-linter's layers that a document leaves out.
PLAIN = {ord("("): None, ord(")"): None, ord(":"): "|"}


def layers(line: str) -> list[set[str]]:
    return [set(layer.split(" | ")) for layer in line.split(" > ")]


def built_at(base: Path) -> bool:
    return base.with_suffix(".py").is_file() or (base / "__init__.py").is_file()


class TestConfigurationDocument:
    def test_lists_exactly_variables_read(self) -> None:
        text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
        assert set(SETTING.findall(text)) == set(variables_read())


def variables_read() -> Iterator[str]:
    """Yield environment variables that the portal's own code reads, not Django's or Python's."""
    for path in [*python_files("portal/"), ROOT / "tests" / "tools.py"]:
        for node in ast.walk(tree(path)):
            asked = list(ast.iter_child_nodes(node))
            if isinstance(node, ast.Call):
                reads = ast.unparse(node.func).rpartition(".")[2]
                if reads not in ("text", "whole", "flag", "listed", "fields", "get", "database"):
                    continue
                asked = list(node.args[:1])
            elif not (isinstance(node, ast.Compare) and "environ" in ast.unparse(node)):
                continue
            for argument in asked:
                value = argument.value if isinstance(argument, ast.Constant) else None
                if isinstance(value, str) and re.fullmatch(r"[A-Z][A-Z_]{3,}", value):
                    yield value


class TestReadme:
    TEXT = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())

    def test_describes_demo_correctly(self) -> None:
        told_so = (
            f"{demo.NODES} nodes with {demo.GPUS_PER_NODE} GPUs each",
            f"runs {demo.SCALE} times as fast",
            f"{demo.SLICE_S // 3600} hours of",
            f"`{DEMO_PASSWORD}`",
            f"for {DATABASE_DAYS} days in the database",
        )
        assert [words for words in told_so if words not in self.TEXT] == []

    def test_lists_all_demo_users(self) -> None:
        assert {name for name in DEMO_PEOPLE.values() if f"| `{name}` |" not in self.TEXT} == set()

    def test_shows_default_address(self) -> None:
        assert f"http://127.0.0.1:{chosen_port({})}/" in self.TEXT


class TestChangelog:
    def test_starts_with_unreleased_and_current_version(self) -> None:
        text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
        version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
        heads = re.findall(r"(?m)^## \[?([^\]\s]+)", text)
        assert heads[:2] == ["Unreleased", version]


class TestBenchmarks:
    def test_placeholders_occur_once_in_document(self) -> None:
        constants = {
            value.value
            for node in ast.walk(tree(ROOT / "benchmarks" / "__main__.py"))
            if isinstance(node, ast.Tuple)
            for value in node.elts
            if isinstance(value, ast.Constant) and str(value.value).startswith("<!--")
        }
        text = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
        assert len(constants) == 2
        assert all(text.count(str(mark)) == 1 for mark in constants)


class TestDecisionRecords:
    def test_snapshot_reads_no_true_durations(self) -> None:
        """docs/adr/0183: only the executor knows a virtual job's true duration."""
        path = ROOT / "scheduling" / "engine" / "snapshots.py"
        read = path.read_text(encoding="utf-8").lower().replace("_", "")
        assert "virtualwork" not in read
        assert "duration" not in read
        values = (CORE / "domain" / "jobs.py").read_text(encoding="utf-8").lower()
        assert "duration_us" not in values
