"""Test limits on sizes.

If a limit conflicts with clarity, clarity wins, and the exception states why.
"""

import ast

from .sources import files, name_of, python_files, tree

FILE_LINES, FUNCTION_LINES = 450, 60
TEMPLATE_COLUMNS = 120

# A file or file::function, and why it may be longer.
EXCEPTIONS: dict[str, str] = {
    "client/src/evenshare/sdk/answers.py": "written by `make fields`",
    "tests/functional/access_table.py": "a table, a row for each URL",
}


def too_long() -> list[str]:
    found = []
    for path in python_files():
        name = name_of(path)
        if "/migrations/" in name:
            continue  # Written by Django, and never edited once applied.
        lines = len(path.read_text().splitlines())
        if lines > FILE_LINES:
            found.append((name, lines))
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                lines = node.end_lineno - node.lineno + 1
                if lines > FUNCTION_LINES:
                    found.append((f"{name}::{node.name}", lines))
    return [f"{name}: {lines} lines" for name, lines in found if name not in EXCEPTIONS]


def test_files_and_functions_are_within_size_limits() -> None:
    assert too_long() == []


def test_size_exceptions_refer_to_existing_files() -> None:
    names = {name_of(path) for path in python_files()}
    assert {key.partition("::")[0] for key in EXCEPTIONS} <= names


def test_template_lines_are_within_limit() -> None:
    """The formatter breaks most lines, but the author must keep the text of a tag short."""
    long = [
        f"{name_of(path)}:{number}"
        for path in files()
        if path.suffix == ".html" and name_of(path).startswith("templates/")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > TEMPLATE_COLUMNS
    ]
    assert long == []
