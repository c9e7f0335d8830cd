"""A pool's settings: policy and options, lengths, clock, and prices with their preview."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _

from evenshare_core.money.fixed_point import to_credits, to_micro
from evenshare_core.money.pricing import posted_price_micro
from evenshare_core.policies.quota_promise import QuotaPromise
from evenshare_core.policies.registry import POLICIES
from evenshare_core.units import ONE_MILLI
from portal.charts.figures import duration, plural, thousands
from portal.common.clocks import pool_now
from portal.common.forms import Field, amount, request_inputs, text, typed_request, whole
from portal.common.quota_promises import pool_promise_text, quota_promise_text
from portal.common.tenant_badges import tenant_badge
from portal.operate.forms.executor import executor_form
from portal.operate.forms.lease_lengths import lease_lengths_form
from portal.operate.forms.settings import (
    SettingGroup,
    lengths_typed,
    option_fields,
    options_typed,
    policy_choices,
    setting_fields,
    setting_groups,
)
from portal.operate.text.impact import Preview, settings_preview
from portal.operate.views.console import (
    actor_of,
    console,
    no_such_button,
    nothing_differed,
    page,
    pool_of_console,
    tell,
)
from scheduling.engine.clock import PoolNow
from scheduling.models import Pool
from scheduling.requests.executor_options import FIELD, parse_executor_options
from scheduling.requests.pools import BASE_MAX, LENGTHS, SCALE_MAX, THETA_MAX, PriceRequest
from scheduling.requests.simulations import LeaseComparisonRequest
from scheduling.selectors.pools.lines import PoolFacts
from scheduling.selectors.pools.settings import posted_use, price_settings
from scheduling.selectors.sharing.quota_promises import promise_with
from scheduling.services import pools as change
from scheduling.services.executors import change_executor_options
from scheduling.services.settings_impact import SettingsImpact, settings_impact
from scheduling.services.simulations import request_lease_comparison
from tenants.input.errors import InvalidInputError, invalid
from tenants.scopes import site_scope
from tenants.selectors.tenants import all_tenants

# Percentages of use for which a setting's price is shown.
USES = (0, 50, 100)


@dataclass(frozen=True, slots=True)
class SettingsRequest:
    """A request to the page: the pool, the action, and its result."""

    facts: PoolFacts
    pool: Pool
    now: PoolNow
    do: str
    errors: Mapping[str, str]
    preview: Preview[SettingsImpact] | None = None


@console
def settings(request: HttpRequest, name: str) -> HttpResponse:
    """Show the settings of a pool."""
    facts, pool = pool_of_console(request, name)
    asked = SettingsRequest(facts, pool, pool_now(facts), text(request.POST, "do"), {})
    if request.method == "POST":
        try:
            if asked.do == "preview":
                return _show(request, replace(asked, preview=_preview(request, asked)))
            tell(request, ACTS.get(asked.do, no_such_button)(request, pool))
        except InvalidInputError as error:
            asked = replace(asked, errors=error.by_field)
        else:
            return redirect("operate-pool", name)
    return _show(request, asked)


def _show(request: HttpRequest, asked: SettingsRequest) -> HttpResponse:
    pool, now, errors = asked.pool, asked.now, asked.errors
    of_form = asked.do in ("settings", "preview")
    typed = request.POST if of_form else {}
    policy = text(typed, "policy") or text(request.GET, "policy") or pool.policy
    policy = policy if policy in POLICIES else pool.policy
    stored = pool.options if policy == pool.policy else {}
    wrong = errors if of_form else {}
    # A link may suggest lengths.
    suggested = {name: request.GET[name] for name in LENGTHS if name in request.GET}
    lengths = setting_fields(pool, typed or suggested, wrong)
    options = option_fields(policy, stored, typed, wrong)
    present = _present_use(pool)
    of_lengths = asked.do == "lengths"
    with site_scope():
        compared = lease_lengths_form(
            pool, request.POST if of_lengths else {}, errors if of_lengths else {}
        )
    context = {
        "pool": asked.facts,
        "row": pool,
        "now": now,
        "policy": policy,
        "rule": POLICIES.get(policy),
        "promise": quota_promise_text(_promise(asked, policy, typed)),
        "present_promise": pool_promise_text(asked.facts),
        "policies": policy_choices(pool.policy),
        "groups": [
            *setting_groups(lengths),
            SettingGroup("group-options", _("Options of {policy}").format(policy=policy), options),
        ],
        "invalid_fields": [one.field for one in (*lengths, *options) if one.field.error],
        "shown": asked.do if errors else "",
        "lease_lengths": compared,
        "reason": text(typed, "reason"),
        "preview": asked.preview,
        "prices": _prices(request, pool, present, errors if asked.do == "price" else {}),
        "executor": executor_form(pool, request.POST if asked.do == "executor" else {}, errors),
        "scale_field": _scale_field(request, asked),
        "trouble": next(
            (
                errors[name]
                for name in ("do", "policy", "reason")
                if name in errors and asked.do != "executor"
            ),
            "",
        ),
        "lease_text": duration(pool.lease_s),
        "round_text": duration(pool.round_s),
        "round_pool_text": duration(pool.round_s * now.scale),
    }
    # htmx shows only successful responses.
    failed = errors and "HX-Request" not in request.headers
    return page(request, "pool.html", context, key="settings", status=422 if failed else 200)


def _scale_field(request: HttpRequest, asked: SettingsRequest) -> Field:
    return Field(
        "scale",
        _("Scale"),
        text(request.POST, "scale") if asked.do == "scale" else str(asked.now.scale),
        "number",
        _(
            "Seconds of pool time per second of wall time. Leases, prices and queue times use pool"
            " time."
        ),
        error=asked.errors.get("scale", ""),
    )


def _promise(asked: SettingsRequest, policy: str, typed: Mapping[str, str]) -> QuotaPromise | None:
    """Return the quota promise of the form's settings, or None if one is unreadable."""
    pool = asked.pool
    stored = pool.options if policy == pool.policy else {}
    options = {**stored, **options_typed(policy, typed)} if policy in POLICIES else {}
    lengths = {name: value for name, value in lengths_typed(typed).items() if value is not None}
    return promise_with(
        policy,
        options,
        round_s=lengths.get("round_s", pool.round_s),
        grace_s=lengths.get("grace_s", pool.grace_s),
        scale=asked.now.scale,
        lease_s=max(
            lengths.get("lease_s", pool.lease_s),
            lengths.get("most_lease_s", pool.most_lease_s),
        ),
    )


def _preview(request: HttpRequest, asked: SettingsRequest) -> Preview[SettingsImpact]:
    policy = text(request.POST, "policy")
    impact = settings_impact(
        pool_id=asked.pool.pk,
        now=asked.now,
        policy=policy,
        options=options_typed(policy, request.POST) if policy in POLICIES else {},
        lengths=lengths_typed(request.POST),
    )
    with site_scope():
        badges = {one.pk: tenant_badge(one) for one in all_tenants()}
    return settings_preview(impact, badges)


def _present_use(pool: Pool) -> dict[str, tuple[int, int]]:
    """Return used and total GPUs by type, as of the last posted prices."""
    with site_scope():
        return posted_use(pool.pk)


def _prices(
    request: HttpRequest,
    pool: Pool,
    present: Mapping[str, tuple[int, int]],
    errors: Mapping[str, str],
) -> list[tuple[str, list[Field], list[tuple[str, str, Decimal | None]]]]:
    """Return each GPU type, its fields, and its price at some uses: text, fraction, credits."""
    with site_scope():
        rows = price_settings(pool.pk)
    settings_rows = []
    for name, row in rows.items():
        typed = request.POST if errors and text(request.POST, "gpu_type") == name else {}
        base = text(typed, "base") or f"{row.base:f}"
        theta = text(typed, "theta") or f"{row.theta:f}"
        shown = {
            "base": base,
            "theta": theta,
            "surcharge_cap": text(typed, "surcharge_cap") or f"{row.surcharge_cap.normalize():f}",
            "surcharge_step": text(typed, "surcharge_step")
            or f"{row.surcharge_step.normalize():f}",
        }
        inputs = request_inputs(PriceRequest, tuple(shown), shown, dict(errors) if typed else {})
        uses = [(_("at {percent} % use").format(percent=use), use, 100) for use in USES]
        used, gpus = present.get(name, (0, 0))
        if gpus:
            present_use = _("now, {used} of {gpus} used")
            shown_use = present_use.format(used=thousands(used), gpus=plural(gpus, "GPU"))
            uses.append((shown_use, used, gpus))
        prices = [
            (label, f"{some / whole_:.6f}", _price(amount(base), amount(theta), some, whole_))
            for label, some, whole_ in uses
        ]
        settings_rows.append((name, inputs, prices))
    return settings_rows


def _price(base: Decimal | None, theta: Decimal | None, used: int, gpus: int) -> Decimal | None:
    """Return the posted price with `used` of the GPUs, or None if the setting is invalid."""
    # Typed values may be invalid: check the bounds first, because rounding 1e30 fails.
    if base is None or theta is None or not (0 <= base <= BASE_MAX and 1 < theta <= THETA_MAX):
        return None
    if base != round(base, 6):
        return None
    theta_milli = int(theta * ONE_MILLI)
    if theta_milli <= ONE_MILLI:
        return None
    return to_credits(posted_price_micro(to_micro(base), theta_milli, used, gpus))


# ---- the buttons ----


def _settings(request: HttpRequest, pool: Pool) -> str:
    policy = text(request.POST, "policy")
    differed = change.change_pool(
        actor=actor_of(request),
        pool_id=pool.pk,
        policy=policy,
        options=options_typed(policy, request.POST) if policy in POLICIES else {},
        lengths=lengths_typed(request.POST),
        visibility=text(request.POST, "visibility"),
        reason=text(request.POST, "reason"),
    )
    if not differed:
        return nothing_differed()
    return _("Saved: the next round of {pool} uses it.").format(pool=pool.name)


def _lengths(request: HttpRequest, pool: Pool) -> str:
    wanted = typed_request(LeaseComparisonRequest, request.POST)
    request_lease_comparison(actor=actor_of(request), pool_id=pool.pk, request=wanted)
    started = _("Started: the comparison takes minutes. Rounds of {pool} go on meanwhile.")
    return started.format(pool=pool.name)


def _executor(request: HttpRequest, pool: Pool) -> str:
    differed = change_executor_options(
        actor=actor_of(request),
        pool_id=pool.pk,
        options=parse_executor_options(request.POST.get(FIELD, "")),
        reason=text(request.POST, "reason"),
        seen=text(request.POST, "seen"),
    )
    if not differed:
        return nothing_differed()
    return _("Saved: new leases of {pool} use it.").format(pool=pool.name)


def _pause(request: HttpRequest, pool: Pool) -> str:
    change.set_pool_clock(actor=actor_of(request), pool_id=pool.pk, paused=True)
    return _("{pool} is paused: no round is decided, no lease ends.").format(pool=pool.name)


def _resume(request: HttpRequest, pool: Pool) -> str:
    change.set_pool_clock(actor=actor_of(request), pool_id=pool.pk, paused=False)
    return _("{pool} is resumed.").format(pool=pool.name)


def _scale(request: HttpRequest, pool: Pool) -> str:
    scale = whole(request.POST.get("scale"))
    if scale is None:
        raise invalid("scale", _("Enter 1 to {most}.").format(most=thousands(SCALE_MAX)))
    change.set_pool_clock(actor=actor_of(request), pool_id=pool.pk, scale=scale)
    text = _("The clock of {pool} runs at {scale} times wall time.")
    return text.format(pool=pool.name, scale=scale)


def _price_set(request: HttpRequest, pool: Pool) -> str:
    wanted = typed_request(PriceRequest, request.POST)
    if not change.set_price(actor=actor_of(request), pool_id=pool.pk, request=wanted):
        return nothing_differed()
    text = _("Saved: the next round of {pool} posts the price of {gpu_type} with it.")
    return text.format(pool=pool.name, gpu_type=wanted.gpu_type)


ACTS: dict[str, Callable[[HttpRequest, Pool], str]] = {
    "settings": _settings,
    "lengths": _lengths,
    "pause": _pause,
    "resume": _resume,
    "scale": _scale,
    "price": _price_set,
    "executor": _executor,
}
