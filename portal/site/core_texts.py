"""Texts of pages that are no arguments of gettext: those of the core, and of requests' fields.

The core has no Django. Pages translate its texts where they show them, with the English text as the
key. These functions list the texts from the objects that have them, so none can be missing.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from inspect import getmembers, getsource, isclass
from pkgutil import walk_packages
from types import ModuleType

from evenshare_core.deadlines import declared
from evenshare_core.domain import reason_texts, utilities
from evenshare_core.domain.reasons import SupersededReason
from evenshare_core.fairness import declared as declared_speeds
from evenshare_core.fairness import measure
from evenshare_core.policies import registry
from evenshare_core.policies.options import Option, OptionError, describe_options
from evenshare_core.policies.policy import Policy
from evenshare_core.policies.quota_promise import PoolLengths, QuotaPromise
from evenshare_core.verification import following_texts
from tenants.input.requests import Request, RequestField, request_fields

# Fields of `ReasonWording` that are codes, not texts.
CODES = {"kind"}
ERRORS = {"UtilityError", "StepError"}
SYMBOL = 2  # the length of a unit's symbol at most
# Variables of the modules that measure a round's properties: why one was not measured.
VARIABLES = {"why", "untried"}


def core_texts() -> Iterator[str]:
    """Yield the texts of the core that pages show."""
    for name, table in vars(reason_texts).items():
        if name.isupper() and not name.startswith("_") and not isinstance(table, str):
            yield from _of_table(table)
    yield from following_texts.TEXTS
    for _, policy in sorted(registry.POLICIES.items()):
        yield from _of_policy(policy)
    yield utilities.FORMS_HINT
    for module in (utilities, declared):
        yield from _of_errors(module)


def note_names() -> Iterator[str]:
    """Yield the names of the notes of policies' picks, which have the context "pick"."""
    for _, policy in sorted(registry.POLICIES.items()):
        yield from (note.replace("_", " ") for note in sorted(policy.note_texts))


def _of_table(table: object) -> Iterator[str]:
    """Yield the texts in a constant: of dicts, tuples and data classes."""
    if isinstance(table, str):
        yield table
    elif isinstance(table, Mapping):
        for row in table.values():
            yield from _of_table(row)
    elif isinstance(table, tuple):
        for row in table:
            yield from _of_table(row)
    elif is_dataclass(table):
        for field in fields(table):
            if field.name not in CODES:
                yield from _of_table(getattr(table, field.name))


def _of_errors(module: ModuleType) -> Iterator[str]:
    """Yield the constant texts of errors that a module of the core raises for a form."""
    for node in ast.walk(ast.parse(getsource(module))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ERRORS:
            texts = (arg.value for arg in node.args if isinstance(arg, ast.Constant))
            yield from (text for text in texts if isinstance(text, str) and " " in text)


def _of_policy(policy: Policy) -> Iterator[str]:
    yield from (policy.title, policy.promise, policy.suits, policy.order_text, policy.quota_text)
    yield from policy.note_texts.values()
    options = describe_options(policy.options_type)
    for option in options:
        yield from (option.label, option.description, *_unit(option.unit))
    for promise in _promises(policy, options):
        yield promise.text
        yield from (part.text for part in promise.parts)
        yield from promise.conditions


def _promises(policy: Policy, options: tuple[Option, ...]) -> Iterator[QuotaPromise]:
    """Yield the quota promises with default options, and with each other value of one option."""
    changes: list[dict[str, object]] = [{}]
    for option in options:
        values = (True, False) if option.kind == "switch" else option.choices
        changes += [{option.name: value} for value in values]
    for change in changes:
        try:
            yield registry.quota_promise(policy.name, change, PoolLengths(1, 1, 1))
        except OptionError:
            continue


def request_texts(area: str) -> Iterator[str]:
    """Yield the texts of fields of the requests in a folder, for forms and errors."""
    for module in _modules(f"{area}.requests"):
        for _, request in getmembers(module, isclass):
            if issubclass(request, Request) and request.__module__ == module.__name__:
                yield request.NOUN
                for field in request_fields(request).values():
                    yield from _of_field(field)


def _of_field(field: RequestField) -> Iterator[str]:
    about = field.input
    yield from (about.complaint, about.advice)
    if about.label:
        yield from (about.label, *_unit(about.unit))
    if about.label or field.pattern:
        yield about.hint or field.description


def _unit(unit: str) -> tuple[str, ...]:
    """Return a unit that is a word; a symbol such as "s" or "MB" is the same in all languages."""
    return (unit,) if len(unit) > SYMBOL else ()


def _modules(name: str) -> Iterator[ModuleType]:
    try:
        package = import_module(name)
    except ModuleNotFoundError:
        return
    yield package
    for module in walk_packages(getattr(package, "__path__", ()), f"{name}."):
        yield import_module(module.name)


def stored_reasons() -> Iterator[str]:
    """Yield why parts of a decision were not applied, and why properties were not measured."""
    yield from map(str, SupersededReason)
    for module in (measure, declared_speeds):
        yield from _assigned(module)


def _assigned(module: ModuleType) -> Iterator[str]:
    """Yield the constants that a module assigns to the variables; texts with numbers are none."""
    for node in ast.walk(ast.parse(getsource(module))):
        is_reason = isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in VARIABLES
        if is_reason and not any(isinstance(part, ast.JoinedStr) for part in ast.walk(node)):
            yield from (
                str(part.value) for part in ast.walk(node) if isinstance(part, ast.Constant)
            )
