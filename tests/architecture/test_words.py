"""Test that names do not use words that docs/glossary.md replaced.

The tests also check that each class has a unique name.
"""

from __future__ import annotations

import ast
import re
import tokenize
from collections import Counter

import pytest

from .sources import PACKAGES, ROOT, name_of, python_files, tree

GLOSSARY = ROOT / "docs" / "glossary.md"
PLACES = (*PACKAGES, "deploy")

# A part of a name (`fallback_told` has two) -> its replacement.
GIVEN_UP = {
    "addend": "line item",
    "addends": "line items",
    "aside": "quarantine",
    "culprit": "faulty job",
    "desk": "the context that it is",
    "found": "what it is: errors, matches, rows",
    "hole": "largest free",
    "lapsed": "expired",
    "otherwise": "counterfactual, default",
    "seat": "membership",
    "seats": "memberships",
    "sheet": "the form that it is",
    "sight": "visibility",
    "sights": "visibilities",
    "staying": "placement stability",
    "stray": "orphan",
    "strays": "orphans",
    "told": "formatted, rendered, summary",
    "words": "text, or what it is",
    "worth": "throughput",
}

# Names that may have such a part, with the reason.
ALLOWED = {
    # The key of a skip's number in stored decisions, and of their explanation.
    "largest_hole",
    # A finished download or job output is put next to the one in progress, not quarantined.
    "_put_aside",
    # Names of Python, and a shell's message about a missing command.
    "FileNotFoundError",
    "PackageNotFoundError",
    "NOT_FOUND",
    "ModuleNotFoundError",
    "NotFound",  # from the API framework
    "page_not_found",  # a view of Django
}

# Keys of published answers, which are names in the code that describes them.
PUBLISHED = {
    place: {"words"}
    for place in (
        *("scheduling/api/jobs.py", "scheduling/selectors/jobs/preemptions.py"),
        *("scheduling/selectors/rounds/rows.py", "scheduling/selectors/rounds/one_round.py"),
        *("portal/jobs/text/log_events.py", "portal/rounds/text/rows.py"),
    )
}

_VALUE = "a policy's value, and the table that it is read from"
# Classes of one name, with the reason.
ALLOWED_TWICE = {
    "Checkpoint": "the state of a training, and what C2SP calls the signed head of a log",
    "Job": _VALUE,
    "Lease": _VALUE,
    "Node": _VALUE,
    "Profile": _VALUE,
    "Sweep": "jobs of one request, and a pass over the events of metering",
    "Tenant": _VALUE,
    "Command": "Django looks a command's class up by this name",
}


def parts(name: str) -> set[str]:
    """Return the words of a name, of `snake_case` and of `CamelCase`."""
    return set(re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower().split("_"))


class TestAbandonedWords:
    @pytest.mark.parametrize("package", PLACES)
    def test_do_not_occur_in_names(self, package: str) -> None:
        back = set()
        for path in python_files(package):
            place = name_of(path)
            if "/migrations/" in place:
                continue
            with tokenize.open(path) as source:
                names = {
                    token.string
                    for token in tokenize.generate_tokens(source.readline)
                    if token.type == tokenize.NAME
                }
            back |= {
                f"{place}: {name}; say {GIVEN_UP[word]}"
                for name in names - ALLOWED - PUBLISHED.get(place, set())
                for word in parts(name) & GIVEN_UP.keys()
            }
        assert sorted(back) == []

    def test_are_listed_in_glossary(self) -> None:
        """So a failing test leads to the replacement."""
        _, _, table = GLOSSARY.read_text(encoding="utf-8").partition(
            "## Words that we no longer use"
        )
        assert [word for word in GIVEN_UP if word.removesuffix("s") not in table] == []


class TestClassNames:
    def test_are_unique(self) -> None:
        """Inner classes are excluded, because they are read with the name of the outer class."""
        classes = Counter(
            node.name
            for path in python_files(*(f"{package}/" for package in PLACES))
            if "/migrations/" not in name_of(path)
            for node in tree(path).body
            if isinstance(node, ast.ClassDef)
        )
        assert {name for name, number in classes.items() if number > 1} == set(ALLOWED_TWICE)
