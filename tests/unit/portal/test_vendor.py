"""Test that served third-party files equal those listed in LICENSES.md, byte for byte."""

from __future__ import annotations

import re
from hashlib import sha256

from tests.architecture.sources import ROOT

VENDOR = ROOT / "static" / "vendor"
SHEET = VENDOR / "plotly.css"
PLOTLY = VENDOR / "plotly-basic.min.js"


def rules_of(script: str) -> list[tuple[str, str]]:
    """Return the style rules (selectors and declarations) that plotly.js would insert."""
    table = re.search(r'pM=\{("X,X div".*?)\};for\(', script)
    assert table is not None
    found = re.findall(r"""(?:"([^"]+)"|(\bY)):(?:"((?:[^"\\])*)"|'([^']*)')""", table.group(1))
    rules = []
    for quoted, bare, said, other in found:
        selector = (quoted or bare).replace("X", ".js-plotly-plot .plotly")
        rules.append((selector.replace("Y", ".plotly-notifier"), said or other))
    return rules


def sheet_of(script: str) -> str:
    """Return the rules in the order of `addStyleRule`, which puts each new rule first."""
    return "".join(f"{selector}{{{said}}}\n" for selector, said in reversed(rules_of(script)))


class TestVendoredFiles:
    def test_match_listed_hashes(self) -> None:
        listed = (VENDOR / "LICENSES.md").read_text()
        for name in ("htmx.min.js", "plotly-basic.min.js"):
            digest = sha256((VENDOR / name).read_bytes()).hexdigest()
            row = next(line for line in listed.splitlines() if f"vendor/{name} " in line)
            assert digest in row, name

    def test_contain_no_source_map_url(self) -> None:
        assert "sourceMappingURL" not in PLOTLY.read_text()


class TestPlotlyStyleRules:
    def test_match_vendored_version(self) -> None:
        head, _, rules = SHEET.read_text().partition("*/\n")
        assert "4.1.1" in head
        assert rules == sheet_of(PLOTLY.read_text())

    def test_are_complete(self) -> None:
        assert len(rules_of(PLOTLY.read_text())) == 66
