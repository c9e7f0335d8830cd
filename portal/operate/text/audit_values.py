"""Names of the values of audit records, as forms name them, and texts of their codes."""

from collections.abc import Mapping

from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.requests import AllowanceRequest, CreditTermsRequest, GiftRequest
from evenshare_core.policies.options import describe_options
from evenshare_core.policies.registry import POLICIES
from portal.common.credit_text import PERIODS
from scheduling.models import Pool, Simulation
from scheduling.requests.nodes import NodeRequest, WindowRequest
from scheduling.requests.pools import PoolChangeRequest, PriceRequest, ScaleRequest
from scheduling.requests.sharing import OfferRequest, PriceLimitRequest, SharingRequest
from scheduling.requests.simulations import HistoryRequest, SimulationRequest
from tenants.input.requests import request_fields
from tenants.models import Membership, User
from tenants.requests import RoleRequest, TenantRequest

# Names of values that no form has, or under another name.
_NAMES = {
    "at": gettext_noop("pool time"),
    "by_offer": gettext_noop("by offer"),
    "channel": gettext_noop("channel"),
    "do": gettext_noop("action"),
    "ends_at": gettext_noop("end"),
    "executor_options": gettext_noop("executor options"),
    "hold": gettext_noop("hold"),
    "host": gettext_noop("host"),
    "identity": gettext_noop("identity"),
    "invitation": gettext_noop("invitation"),
    "is_active": gettext_noop("may log in"),
    "is_shown": gettext_noop("shown to tenants"),
    "job": gettext_noop("job"),
    "kind": gettext_noop("kind"),
    "kinds": gettext_noop("messages"),
    "lease": gettext_noop("lease"),
    "leases": gettext_noop("leases"),
    "member": gettext_noop("member"),
    "node": gettext_noop("node"),
    "options": gettext_noop("options"),
    "paused": gettext_noop("paused"),
    "period_action": gettext_noop("when the budget is used up"),
    "period_amount": gettext_noop("budget"),
    "period_ends_at": gettext_noop("end of the budget's period"),
    "period_kind": gettext_noop("period of the budget"),
    "period_starts_at": gettext_noop("begin of the budget's period"),
    "people": gettext_noop("sharing among people"),
    "priority": gettext_noop("priority"),
    "processes": gettext_noop("processes"),
    "quarantine": gettext_noop("quarantine"),
    "request": gettext_noop("request"),
    "same_cluster": gettext_noop("same cluster"),
    "scopes": gettext_noop("scopes"),
    "seen": gettext_noop("list that was confirmed"),
    "sessions_ended": gettext_noop("sessions ended"),
    "simulation": gettext_noop("simulation"),
    "site_role": gettext_noop("role for the site"),
    "source": gettext_noop("source"),
    "speeds": gettext_noop("speed on"),
    "starts_at": gettext_noop("begin"),
    "state": gettext_noop("state"),
    "token": gettext_noop("token"),
    "tokens": gettext_noop("tokens"),
    "tokens_dropped": gettext_noop("API tokens revoked"),
    "transfer": gettext_noop("transfer"),
    "username": gettext_noop("login name"),
}
# Forms whose fields have the names of the others.
_FORMS = (
    PoolChangeRequest, ScaleRequest, PriceRequest, NodeRequest, WindowRequest, SharingRequest,
    OfferRequest, PriceLimitRequest, CreditTermsRequest, AllowanceRequest, GiftRequest,
    TenantRequest, RoleRequest, HistoryRequest, SimulationRequest,
)  # fmt: skip # a list of names
# Texts of values that are codes, by the value's name.
_CODES: Mapping[str, Mapping[str, str]] = {
    "kind": {
        Simulation.Kind.NEXT_HOURS: gettext_noop("next hours"),
        Simulation.Kind.LEASE_LENGTHS: gettext_noop("lease lengths"),
        Simulation.Kind.HISTORY: gettext_noop("replay"),
    },
    "mode": {
        "RESERVE": gettext_noop("reserve"),
        "LEND": gettext_noop("lend"),
        "LEND_AND_BORROW": gettext_noop("lend and borrow"),
    },
    "period_action": {"warn": gettext_noop("warn"), "block": gettext_noop("block")},
    "period_kind": {kind.value: text for kind, text in PERIODS.items()},
    "role": dict(Membership.Role.choices),
    "site_role": dict(User.SiteRole.choices),
    "state": {
        "up": gettext_noop("up"),
        "drained": gettext_noop("drained"),
        "lost": gettext_noop("lost"),
        "queued": gettext_noop("queued"),
        "running": gettext_noop("running"),
        "cancelled": gettext_noop("cancelled"),
    },
    "visibility": dict(Pool.Visibility.choices),
}


def _labels() -> Mapping[str, tuple[str, str]]:
    """Return the label and the unit of each field of the forms; an earlier form wins."""
    return {
        name: (field.input.label, field.input.unit)
        for form in reversed(_FORMS)
        for name, field in request_fields(form).items()
        if field.input.label
    }


_LABELS = _labels()
_OPTIONS = {
    option.name: (option.label, option.unit)
    for policy in POLICIES.values()
    for option in describe_options(policy.options_type)
}


def value_name(path: str) -> str:
    """Return a value's name; the path of a nested value has a comma after each name."""
    outer, _comma, name = path.partition(", ")
    if path in _NAMES:
        return capfirst(_(_NAMES[path]))
    label = _OPTIONS.get(name) if outer == "options" else _LABELS.get(path)
    if label is not None:
        text, unit = label
        return f"{_(text)}, {_(unit)}" if unit else _(text)
    return f"{value_name(outer)}, {name}" if name else capfirst(path.replace("_", " "))


def code_text(name: str, code: str) -> str:
    """Return the text of a value that is a code; any other value is unchanged."""
    text = _CODES.get(name, {}).get(code)
    return code if text is None else _(text)
