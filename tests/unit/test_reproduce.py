"""Test `make reproduce`: runs are made once and go on if interrupted; each part can be judged."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Sequence
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from evenshare_core.policies import registry
from evenshare_core.policies.options import parse_options
from evenshare_research.reproduce import __main__ as command
from evenshare_research.reproduce import runs
from evenshare_research.reproduce.model import (
    Claim,
    ClaimVerdict,
    Findings,
    Part,
    ReportChart,
    ReportTable,
    Results,
)
from evenshare_research.reproduce.philly import ORIGIN, TRACE, philly_slice
from evenshare_research.reproduce.report import FOLDER, Done, documents, page
from evenshare_research.reproduce.runs import KeptRun, code_digest, minutes, perform, perform_all
from evenshare_research.reproduce.written import written_parts

from .reproduce_results import made_up

MADE = "tests.unit.test_reproduce:made"


def markdown(done: Done, measured: str = "Made today.") -> str:
    """Return all documents as one text."""
    return "\n".join(documents(done, measured).values())


def made(folder: str, number: int) -> dict[str, int]:
    """Count the run; the number 13 fails."""
    if number == 13:
        raise RuntimeError("no")
    with (Path(folder) / f"{number}").open("a", encoding="utf-8") as file:
        file.write(".")
    return {"square": number * number}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(runs, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(command, "KEPT", tmp_path / "kept")
    return tmp_path


def counted(folder: Path, *numbers: int) -> list[KeptRun]:
    return [
        KeptRun.of(MADE, f"{number}", number, folder=str(folder), number=number)
        for number in numbers
    ]


def squares(wanted: Sequence[KeptRun]) -> tuple[list[int], list[str]]:
    said: list[str] = []
    results = perform_all(wanted, processes=1, say=said.append)
    return [results[run]["square"] for run in wanted], said


class TestRuns:
    def test_are_executed_once(self, folder: Path) -> None:
        wanted = counted(folder, 2, 3, 2)
        assert squares(wanted)[0] == [4, 9, 4]
        values, said = squares(wanted)
        assert values == [4, 9, 4]
        assert said == ["2 of 2 runs are kept from before; the others take about 0 s on 1 core"]
        assert (folder / "2").read_text() == (folder / "3").read_text() == "."

    def test_resume_after_interruption(self, folder: Path) -> None:
        with pytest.raises(RuntimeError):
            squares(counted(folder, 20, 13, 2))
        assert squares(counted(folder, 20, 2))[0] == [400, 4]
        assert (folder / "20").read_text() == "."

    def test_partial_result_is_recomputed(self, folder: Path) -> None:
        (run,) = counted(folder, 5)
        perform(run)
        run.path.write_text('{"square": 2', encoding="utf-8")
        assert squares([run])[0] == [25]

    def test_path_depends_on_code_and_arguments(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one, other = counted(folder, 1, 2)
        assert one.path != other.path
        before = one.path
        monkeypatch.setattr(runs, "code_digest", lambda _: "other")
        assert one.path != before

    def test_digest_covers_only_imported_code(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """If only a judgement or a sentence of the report changes, no run is repeated."""
        folder = tmp_path / "evenshare_research" / "reproduce"
        (folder / "data").mkdir(parents=True)
        imported = "from evenshare_research.reproduce.helper import one"
        for name, text in (("maker", imported), ("helper", "one = 1"), ("judge", "")):
            (folder / f"{name}.py").write_text(text, encoding="utf-8")
        monkeypatch.setattr(runs, "SOURCES", tmp_path)
        monkeypatch.setattr(runs, "DATA", folder / "data")

        def digest() -> str:
            code_digest.cache_clear()
            return code_digest("evenshare_research.reproduce.maker")

        before = digest()
        (folder / "judge.py").write_text("two = 2", encoding="utf-8")
        assert digest() == before
        (folder / "helper.py").write_text("one = 2", encoding="utf-8")
        assert digest() != before
        code_digest.cache_clear()

    def test_are_distributed_over_processes(self, folder: Path) -> None:
        results = perform_all(counted(folder, 2, 3, 4), processes=2, say=lambda _: None)
        assert sorted(value["square"] for value in results.values()) == [4, 9, 16]


class TestPhillyTrace:
    def test_matches_documented_slice(self) -> None:
        jobs = philly_slice("2017-10-09").jobs
        assert len(jobs) == 26_936
        assert len({job.tenant for job in jobs}) == 11
        assert TRACE.with_name("README.md").is_file()
        assert ORIGIN.isoformat() in TRACE.with_name("README.md").read_text(encoding="utf-8")


def run_function(run: KeptRun) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(
        import_module(run.module), run.function.partition(":")[2]
    )
    return function


class TestParts:
    @pytest.mark.parametrize("part", command.PARTS, ids=lambda part: part.name)
    def test_runs_have_valid_arguments(self, part: Part) -> None:
        assert part.runs
        for run in part.runs:
            arguments = json.loads(run.arguments)
            assert set(arguments) == set(signature(run_function(run)).parameters)
            if arguments.get("policy"):
                policy = registry.policy(arguments["policy"])
                parse_options(policy.options_type, arguments["options"])

    @pytest.mark.parametrize("part", command.PARTS, ids=lambda part: part.name)
    def test_are_judged_and_rendered(self, part: Part) -> None:
        findings = part.judge(made_up(part))
        assert findings.tables or findings.claims
        text = markdown([(part, findings)])
        for table in findings.tables:
            assert f"### {table.title}\n" in text
            assert all(len(row) == len(table.head) for row in table.rows)
        for claim in findings.claims:
            assert claim.ours
            assert f"*{claim.verdict.value}*" in text
        assert page([(part, findings)], "Made today.").count('class="chart"') == len(
            findings.charts
        )

    def test_names_are_unique(self) -> None:
        names = [part.name for part in command.PARTS]
        assert len(names) == len(set(names))

    def test_default_parts_take_at_most_an_hour_on_two_cores(self) -> None:
        asked = {run for part in command.PARTS if not part.is_long for run in part.runs}
        assert sum(run.about_s for run in asked) <= 2 * 3600


def written() -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}


class TestDocuments:
    """The documents keep the measurements of parts that the tests do not run."""

    def test_are_unchanged_if_nothing_was_run(self) -> None:
        assert documents([(part, None) for part in command.PARTS], "today.", written()) == written()

    def test_count_claims_by_verdict(self) -> None:
        text = "\n".join(written().values())
        verdicts = [one for part in written_parts(text).values() for one in part.verdicts or ()]
        assert len(verdicts) == text.count("| *")
        assert f"Of {len(verdicts)} claims:" in text

    def test_link_every_experiment_with_claims(self) -> None:
        texts = written()
        for name, text in texts.items():
            for title, part in written_parts(text).items():
                if part.verdicts:
                    assert f"[{title}]({name}#" in texts["README.md"]

    def test_reject_claim_without_verdict(self) -> None:
        text = "## One\n\n*Run*: x\n\n| section | claim | paper | here | verdict |\n|---|\n| 1 |\n"
        with pytest.raises(ValueError, match="a claim without a verdict"):
            written_parts(text)


class TestSkippedParts:
    """The documents name each part that was not run, and its duration."""

    def test_are_listed_with_duration(self) -> None:
        (part,) = [part for part in command.PARTS if part.name == "verdict"]
        text = markdown([(part, None)], "Made today.")
        assert f"*Not run* with this version: about {minutes(part.about_s)} on one core" in text
        assert "Not run with this version" in page([(part, None)], "Made today.")

    def test_are_listed_with_their_paper(self) -> None:
        parts = [part for part in command.PARTS if part.name.startswith("oef")]
        done = [(part, part.judge(made_up(part)) if part.name == "oef" else None) for part in parts]
        text = markdown(done, "Made today.")
        assert "| `oef-four`, `oef-proofs`, `oef-errors`, `oef-actual`, `oef-jct` |" in text
        assert text.count("*Not run* with this version") == 5

    def test_all_five_papers_have_claims(self) -> None:
        sources = {part.source for part in command.PARTS if part.judge(made_up(part)).claims}
        assert len(sources) == 5


class TestVerdicts:
    """A verdict is computed. Only that a claim cannot be tested is written down."""

    def test_are_not_constants(self) -> None:
        sources = {
            Path(str(import_module(part.judge.__module__).__file__)) for part in command.PARTS
        }
        assert len(sources) >= 5
        calls = [
            call
            for path in sources
            for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(call, ast.Call) and ast.unparse(call.func) in {"Claim", "Claim.of"}
        ]
        given = [*(one for call in calls for one in call.args)]
        given += [keyword.value for call in calls for keyword in call.keywords]
        typed = {ast.unparse(one) for one in given}
        constants = {f"ClaimVerdict.{one.name}" for one in ClaimVerdict} | {"True", "False"}
        assert typed & constants == {"ClaimVerdict.NOT_TESTABLE"}


HOSTILE = "</script><b>&|"
CLAIMS = """| section | claim | paper | here | verdict |
| --- | --- | --- | --- | --- |
| 1 | x | 9 | 9 | *reproduced* |
"""


def judged(results: Results) -> Findings:
    (value,) = (row["square"] for row in results.values())
    claim = Claim("1", HOSTILE, "9", f"{value}", ClaimVerdict.REPRODUCED)
    chart = ReportChart("c", "x", "y", [{"x": [HOSTILE], "y": [value]}])
    return Findings([claim], [ReportTable("t", ["", "a|b"], [["r", "1"]])], [chart])


class TestCommand:
    @pytest.fixture
    def part(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Part:
        one = Part("one", "One", "A paper", "nothing", counted(folder, 3), judged)
        other = Part("other", "Other", "", "nothing", counted(folder, 13), judged, is_long=True)
        monkeypatch.setattr(command, "PARTS", (one, other))
        monkeypatch.setattr(command, "FOLDER", folder)
        return one

    def test_runs_short_parts_and_writes_documents(
        self, part: Part, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert command.main(["--processes", "1", "--write"]) == 0
        text = (folder / "one.md").read_text(encoding="utf-8")
        assert "| 1 | </script><b>&\\| | 9 | 9 | *reproduced* |" in text
        assert "## One" in text
        other = (folder / "policies.md").read_text(encoding="utf-8")
        assert "## Other\n\n*Not run* with this version: about 13 s on one core" in other
        shown = (folder / "kept" / "report.html").read_text(encoding="utf-8")
        assert "&lt;/script&gt;" in shown
        assert "const CHARTS" in shown
        assert '"</script>' not in shown
        assert "report.html" in capsys.readouterr().out

    def test_keeps_earlier_measurements(
        self, part: Part, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The other part was run on another day, with other claims."""
        document = folder / "two.md"
        old = f"# Two\n\n## Two\n\n*Measured* then.\n\n*Run*: nothing\n\n{CLAIMS}"
        document.write_text(old, encoding="utf-8")
        two = Part(
            "two", "Two", "Another paper", "nothing", counted(folder, 13), judged, is_long=True
        )
        monkeypatch.setattr(command, "PARTS", (part, two))
        assert command.main(["--processes", "1", "--write", "one"]) == 0
        assert document.read_text(encoding="utf-8").partition("## ")[2] == old.partition("## ")[2]
        summary = (folder / "README.md").read_text(encoding="utf-8")
        assert "Of 2 claims: 2 reproduced." in summary

    def test_lists_parts_with_duration(
        self, part: Part, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert command.main(["--list"]) == 0
        out = capsys.readouterr().out
        assert "13 s on one core  Other  (long: by name only)" in out

    def test_rejects_unknown_part(self, part: Part, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            command.main(["none"])
        assert "no part is named 'none'; there are one, other" in capsys.readouterr().err
