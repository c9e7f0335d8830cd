"""The form of a pool's executor options: JSON, with the errors by option."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from portal.common.forms import text
from scheduling.engine.executors.base import executor_traits
from scheduling.engine.executors.pool_options import FIELD, default_options, required_options
from scheduling.models import Pool
from scheduling.selectors.pools.executors import name_of_options


@dataclass(frozen=True, slots=True)
class OptionDefault:
    """An option of an executor, and its default.

    `is_of_host`: it is set only on the portal's machine.
    """

    name: str
    default: str
    is_of_host: bool


@dataclass(frozen=True, slots=True)
class ExecutorForm:
    """The data of templates/operate/_executor_options.html.

    `seen` identifies the options on which the form is based. `set_since` is the text of the stored
    options if they have changed since the form was loaded, else empty. `errors`: (option, error);
    the option is empty for an error of the whole text.
    """

    title: str
    written: str
    rows: int
    seen: str
    set_since: str
    options: tuple[OptionDefault, ...]
    errors: tuple[tuple[str, str], ...]
    reason: str
    reason_error: str


def executor_form(pool: Pool, typed: Mapping[str, str], errors: Mapping[str, str]) -> ExecutorForm:
    """Return the form as typed, by default with the pool's options."""
    traits = executor_traits(pool.executor)
    kind = traits.options_type
    stored = json.dumps(pool.executor_options, indent=2, ensure_ascii=False)
    written = typed.get(FIELD, stored)
    of_host = traits.host_options
    needed = [OptionDefault(name, "needed", name in of_host) for name in required_options(kind)]
    defaults = [
        OptionDefault(name, json.dumps(value), name in of_host)
        for name, value in default_options(kind).items()
    ]
    seen, wrong = name_of_options(pool.executor_options), errors if typed else {}
    return ExecutorForm(
        title=traits.title or pool.executor,
        written=written,
        rows=min(max(written.count("\n") + 2, 4), 24),
        seen=seen,
        set_since=stored if typed and text(typed, "seen") != seen else "",
        options=(*needed, *defaults),
        errors=tuple(_named(name, said) for name, said in wrong.items() if name != "reason"),
        reason=text(typed, "reason"),
        reason_error=wrong.get("reason", ""),
    )


def _named(field: str, reason: str) -> tuple[str, str]:
    _, _, name = field.partition(f"{FIELD}.")
    said = reason if reason.endswith(".") else f"{reason}."
    return name, said if name else said[:1].upper() + said[1:]
