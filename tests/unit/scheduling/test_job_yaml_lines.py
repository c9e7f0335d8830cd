"""Test that the line of a YAML error is the line that an editor shows, for all line endings."""

from __future__ import annotations

import pytest

from scheduling.requests.job_yaml import YamlError, read_yaml
from tenants.input.errors import InvalidInputError
from tenants.quota_files import read_lines

# An error's text and its line.
WRONG = {
    "a tab": ("pool: a\n\tgpus: 2\n", 2),
    "a tab below a field": ("pool: a\nenvironment:\n\tA: 1\n", 3),
    "a quote that is not closed": ('pool: a\nname: "x\ngpus: 2\nweight: 3\n', 2),
    "a list that is not closed": ("pool: a\ncommand: [a, b\ngpus: 2\nname: x\n", 2),
    "a mapping that is not closed": ("pool: a\nutility: {kind: bid\ngpus: 2\n", 2),
    "a long list": ("command: [\n  a,\n  b }\n]\n", 3),
    "no colon": ("pool: a\ngpus 2\nname: x\n", 2),
    "no colon at the end": ("pool: a\ngpus 2", 2),
    "two colons": ("pool: a\nname: b: c\n", 2),
    "no bullet": ("command:\n  - a\n  b\ngpus: 2\n", 3),
    "an indent": ("pool: a\ngpus: 2\n  name: x\n", 3),
    "a field twice": ("pool: a\ngpus: 2\npool: b\n", 3),
    "a second document": ("pool: a\ngpus: 2\n---\npool: b\n", 3),
    "a list": ("---\n- a\n", 2),
    "a sign": ("pool: a\nname: @x\n", 2),
    "a control character": ("pool: a\nname: é\x01\n", 2),
    "an escape": ('pool: a\nname: "é\\q"\ngpus: 1\n', 2),
    "an anchor": ("pool: a\ngpus: &x 2\n", 2),
    "a line that YAML alone ends": ('name: "a\u2028b"\npool: @x\n', 2),
    "a next line": ("pool: a\x85gpus: 2\nname: @x\n", 2),
}
ABOVE = ("", "\n\n", "# of mine\n\n  # é\n", "---\n# of mine\n")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("above", ABOVE)
class TestErrorLine:
    @pytest.mark.parametrize("wrong", WRONG)
    def test_points_to_faulty_line(self, wrong: str, above: str, end: str) -> None:
        text, line = WRONG[wrong]
        if text.startswith("---") and "---" in above:
            above = above.replace("---\n", "")
        with pytest.raises(YamlError) as refused:
            read_yaml((above + text).replace("\n", end))
        assert refused.value.line == above.count("\n") + line, refused.value.text

    def test_of_field_is_line_of_its_key(self, above: str, end: str) -> None:
        text = 'name: "a\x85b"\n# mine\n\ngpus: 1\ncommand:\n  - a\n  - b\nmine: 3\n'
        lines = read_yaml((above + text).replace("\n", end)).lines
        below = {name: line - above.count("\n") for name, line in lines.items()}
        assert below == {"name": 1, "gpus": 4, "command": 5, "mine": 8}

    def test_of_quota_file_follows_same_rules(self, above: str, end: str) -> None:
        for text, line in (("- tenant: a\n  gpus 2\n  pool: b\n", 2), ("- pool: a\n- odd: b\n", 2)):
            with pytest.raises(InvalidInputError) as refused:
                read_lines((above + text).replace("\n", end), is_yaml=True)
            assert line + above.count("\n") in {error.line for error in refused.value.errors}
