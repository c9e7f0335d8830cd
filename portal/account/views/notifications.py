"""The user's notifications: subscriptions, their deliveries, and the links of mails."""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponseBase, QueryDict
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_POST

from portal.common.access import access, signed_in
from portal.common.forms import Field, request_inputs, typed_request
from portal.site.request_id import request_id_of
from scheduling.engine.clock import wall_now
from scheduling.outbox.bodies import CONFIRM, OFF, subscription_of
from scheduling.outbox.deliver import NO_MAIL
from scheduling.requests.subscriptions import (
    CHANNELS,
    JOBS,
    KINDS,
    KINDS_USUAL,
    SubscriptionRequest,
)
from scheduling.selectors.messages.views import (
    DeliveryRow,
    SubscriptionRow,
    list_deliveries,
    subscription_row,
    subscriptions_of,
)
from scheduling.services.subscriptions import (
    TOO_MANY,
    confirm,
    send_again,
    send_test,
    set_active,
    subscribe,
    turn_off,
    unsubscribe,
)
from tenants.audit import Actor
from tenants.input.errors import InvalidInputError
from tenants.models import User
from tenants.rate import RateError
from tenants.scopes import site_scope

DELIVERIES = 50
NAMES = ("tenant", "channel", "address", "jobs", "pool", "tag", "digest_hour", "zone")
STATES = {
    "active": ("ok", gettext_noop("Active")),
    "paused": ("off", gettext_noop("Paused")),
    "unconfirmed": ("warn", gettext_noop("Not confirmed")),
    "failed": ("bad", gettext_noop("Switched off")),
}
FAILING = ("warn", gettext_noop("Failing"))
# The events of the matrix; their notes have the whole sentences.
EVENTS = {
    "job_started": gettext_noop("Start"),
    "job_ended": gettext_noop("End"),
    "job_failed": gettext_noop("Failure"),
    "job_preempted": gettext_noop("Preemption"),
    "job_not_renewed": gettext_noop("Not renewed"),
    "job_idle": gettext_noop("Idle GPUs"),
    "start_promised": gettext_noop("Promise"),
    "deadline_moved": gettext_noop("Deadline"),
    "budget_reached": gettext_noop("Budget"),
    "offer_revoked": gettext_noop("Offer revoked"),
    "quota_decided": gettext_noop("Quota request"),
}
SUBJECTS = KINDS | {"test": gettext_noop("Test"), "confirm": gettext_noop("Confirmation")}
# The fields that few subscriptions need.
NAMES_MORE = ("tenant", "jobs", "pool", "tag", "digest_hour", "zone")
STATE_TEXTS = {
    "due": gettext_noop("will be tried again"),
    "sent": gettext_noop("sent"),
    "failed": gettext_noop("given up"),
}


@dataclass(frozen=True, slots=True)
class SubscriptionView:
    """A subscription with its texts."""

    row: SubscriptionRow
    channel: str
    badge: tuple[str, str]

    @classmethod
    def of(cls, row: SubscriptionRow) -> "SubscriptionView":
        kind, text = STATES[row.state]
        if row.state == "active" and row.failures:
            kind, text = FAILING
        return cls(row, _(CHANNELS[row.channel]), (kind, _(text)))


@dataclass(frozen=True, slots=True)
class EventRow:
    """An event: the subscriptions that have it, and whether the form's new one has it."""

    kind: str
    name: str
    about: str
    has: tuple[bool, ...]
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class DeliveryView:
    """A delivery with its texts."""

    row: DeliveryRow
    subject: str
    address: str
    then: str


@signed_in
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def notifications(request: HttpRequest) -> HttpResponseBase:
    """Show the viewer's subscriptions and deliveries, and a form for a new subscription."""
    person, errors = _person(request), {}
    made: SubscriptionRow | None = None
    secret = ""
    if request.method == "POST":
        try:
            row, secret = subscribe(
                actor=_actor(request),
                request=typed_request(SubscriptionRequest, request.POST),
                now=wall_now(),
            )
        except InvalidInputError as error:
            errors = error.by_field
        except RateError:
            errors = {"address": _(TOO_MANY)}
        else:
            with site_scope():
                made = subscription_row(row)
    with site_scope():
        subscriptions = [SubscriptionView.of(one) for one in subscriptions_of(person)]
        deliveries = list_deliveries(person, before=None, limit=DELIVERIES)
    addresses = {one.row.id: one.row.address for one in subscriptions}
    typed = request.POST if errors else QueryDict()
    fields = _fields(request, typed, errors)
    more = [one for one in fields if one.name in NAMES_MORE]
    context = {
        "subscriptions": subscriptions,
        "deliveries": [_delivery(one, addresses) for one in deliveries],
        "made": made,
        "secret": secret,
        "is_refused": bool(errors),
        "no_mail": "" if settings.EMAIL_HOST else _(NO_MAIL),
        "fields": [one for one in fields if one.name not in NAMES_MORE],
        "more_fields": more,
        "more_is_open": any(one.error for one in more),
        "events": _events(subscriptions, typed),
        "kinds_error": errors.get("kinds", ""),
        "is_member": bool(access(request).memberships),
    }
    return render(request, "account/notifications.html", context, status=422 if errors else 200)


@signed_in
@never_cache
@require_POST
def change(request: HttpRequest, uid: UUID, action: str) -> HttpResponseBase:
    """Test, pause, resume or remove one of the viewer's subscriptions."""
    act = ACTIONS.get(action)
    if act is None:
        raise Http404
    try:
        done = act(_actor(request), uid)
    except RateError:
        messages.warning(request, _(TOO_MANY))
    else:
        if not done:
            raise Http404
        messages.success(request, _(DONE[action]))
    return redirect("notifications")


@signed_in
@never_cache
@require_POST
def again(request: HttpRequest, uid: UUID) -> HttpResponseBase:
    """Send one of the viewer's messages again."""
    try:
        row = send_again(actor=_actor(request), uid=uid, now=wall_now())
    except RateError:
        messages.warning(request, _(TOO_MANY))
    else:
        if row is None:
            raise Http404
        messages.success(request, _("The message is sent again, unless its subscription is off."))
    return redirect("notifications")


# A mail program sends the POST itself (RFC 8058), without a cookie. The token is the proof.
@csrf_exempt
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def off(request: HttpRequest, token: str) -> HttpResponseBase:
    """Stop the mails of a link, without signing in."""
    return _by_link(request, token, OFF, turn_off)


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def confirmation(request: HttpRequest, token: str) -> HttpResponseBase:
    """Confirm the mail address of a link, without signing in.

    It takes a button, because scanners of mail open links.
    """
    return _by_link(request, token, CONFIRM, confirm)


def _by_link(
    request: HttpRequest, token: str, use: str, act: Callable[[str], object]
) -> HttpResponseBase:
    if subscription_of(token, use) is None:
        raise Http404
    is_done = request.method == "POST"
    if is_done and act(token) is None:
        raise Http404
    context = {"is_done": is_done, "confirms": use == CONFIRM}
    return render(request, "account/notification_link.html", context)


def _set(actor: Actor, uid: UUID, *, active: bool) -> object:
    return set_active(actor=actor, uid=uid, active=active, now=wall_now())


ACTIONS: dict[str, Callable[[Actor, UUID], object]] = {
    "test": lambda actor, uid: send_test(actor=actor, uid=uid, now=wall_now()),
    "pause": lambda actor, uid: _set(actor, uid, active=False),
    "resume": lambda actor, uid: _set(actor, uid, active=True),
    "remove": lambda actor, uid: unsubscribe(actor=actor, uid=uid),
}
DONE = {
    "test": gettext_noop("A test message is on its way."),
    "pause": gettext_noop("Paused."),
    "resume": gettext_noop("Resumed. An address that is not confirmed is asked first."),
    "remove": gettext_noop("Removed."),
}


def _person(request: HttpRequest) -> User:
    if not isinstance(request.user, User):
        raise PermissionDenied
    return request.user


def _actor(request: HttpRequest) -> Actor:
    return Actor(_person(request), request_id_of(request))


def _fields(request: HttpRequest, typed: QueryDict, errors: dict[str, str]) -> list[Field]:
    tenants = tuple((one.slug, one.name) for one in access(request).memberships)
    defaults = {"zone": "UTC", "channel": "mail" if settings.EMAIL_HOST else "webhook"}
    choices = {
        "tenant": tenants,
        "channel": tuple(
            (value, _(text))
            for value, text in CHANNELS.items()
            if value != "mail" or settings.EMAIL_HOST
        ),
        "jobs": tuple((value, _(text)) for value, text in JOBS.items()),
    }
    return request_inputs(
        SubscriptionRequest, NAMES, typed, errors, defaults=defaults, choices=choices
    )


def _events(subscriptions: list[SubscriptionView], typed: QueryDict) -> list[EventRow]:
    chosen = typed.getlist("kinds") if typed else KINDS_USUAL
    return [
        EventRow(
            kind,
            _(EVENTS[kind]),
            f"{_(text)}.",
            tuple(kind in one.row.kinds for one in subscriptions),
            kind in chosen,
        )
        for kind, text in KINDS.items()
    ]


def _delivery(row: DeliveryRow, addresses: dict[UUID, str]) -> DeliveryView:
    subject, then = SUBJECTS.get(row.kind, ""), STATE_TEXTS.get(row.state, "")
    return DeliveryView(
        row,
        _(subject) if subject else "",
        addresses.get(row.subscription, ""),
        _(then) if then else "",
    )
