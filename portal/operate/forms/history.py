"""The form that replays a pool's last days under several policies."""

from dataclasses import dataclass

from django.http import QueryDict

from portal.common.forms import Field, request_inputs
from portal.operate.forms.settings import policy_choices
from scheduling.models import Pool
from scheduling.requests.simulations import DAYS, HistoryRequest

DEFAULT_DAYS = 3


@dataclass(frozen=True, slots=True)
class HistoryForm:
    """The form's data. `policies` are the other policies: name, title, and whether chosen."""

    fields: list[Field]
    policies: tuple[tuple[str, str, bool], ...]
    error: str


def history_form(pool: Pool, typed: QueryDict, errors: dict[str, str]) -> HistoryForm:
    """Return the form as typed; the default seed is that of the pool."""
    fields = request_inputs(
        HistoryRequest,
        ("days", "seed"),
        typed,
        errors,
        defaults={"days": str(DEFAULT_DAYS), "seed": str(pool.seed)},
        choices={"days": tuple((str(one), str(one)) for one in DAYS)},
    )
    chosen = typed.getlist("policies")
    others = tuple(
        (name, title, name in chosen)
        for name, title in policy_choices(pool.policy)
        if name != pool.policy
    )
    return HistoryForm(fields, others, errors.get("policies", ""))
