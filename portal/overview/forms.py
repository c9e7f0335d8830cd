"""Forms of a tenant's quota: lending and borrowing, an offer, the price limit, a request."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from evenshare_core.domain.entitlements import Mode
from evenshare_core.money.fixed_point import to_text
from portal.charts.figures import thousands
from portal.common.forms import Field, instant, instant_text, request_inputs, text, whole
from scheduling.requests.quota_requests import QuotaAskRequest
from scheduling.requests.sharing import OfferRequest, PriceLimitRequest, SharingRequest
from scheduling.selectors.sharing.views import SharingRow

BY_OFFER, AS_IT_IS = "offers", "as-it-is"
MODE_TEXTS = (
    (Mode.LEND_AND_BORROW.value, gettext_noop("Lend and borrow")),
    (Mode.LEND.value, gettext_noop("Lend, borrow nothing")),
    (Mode.RESERVE.value, gettext_noop("Reserve: lend and borrow nothing")),
)
_BY_OFFER_TEXTS = (
    (AS_IT_IS, gettext_noop("at any price, without offers")),
    (BY_OFFER, gettext_noop("only by our offers")),
)


def settings_fields(
    row: SharingRow, typed: Mapping[str, str], errors: Mapping[str, str]
) -> list[Field]:
    """Return the inputs of a GPU type's own settings, stored or as typed."""
    own = row.own
    return request_inputs(
        SharingRequest,
        ("mode", "by_offer", "lend_limit", "borrow_limit"),
        typed,
        errors,
        defaults={
            "mode": own.mode.value,
            "by_offer": BY_OFFER if own.by_offer else AS_IT_IS,
            # A limit that the user cleared stays empty.
            **({} if typed else _limits(row)),
        },
        choices={
            "mode": tuple((mode, _(text)) for mode, text in MODE_TEXTS),
            "by_offer": tuple((rule, _(text)) for rule, text in _BY_OFFER_TEXTS),
        },
    )


def _limits(row: SharingRow) -> dict[str, str]:
    limits = {"lend_limit": row.own.lend_limit, "borrow_limit": row.own.borrow_limit}
    return {name: "" if limit is None else str(limit) for name, limit in limits.items()}


def offer_fields(
    gpu_types: Sequence[str], typed: Mapping[str, str], errors: Mapping[str, str]
) -> list[Field]:
    """Return the inputs of an offer; `gpu_types`: the types of the quota."""
    return request_inputs(
        OfferRequest,
        ("gpu_type", "gpus", "floor_price", "until"),
        typed,
        errors,
        choices={"gpu_type": tuple((name, name) for name in gpu_types)},
    )


def limit_fields(
    most_micro: int | None, typed: Mapping[str, str], errors: Mapping[str, str]
) -> list[Field]:
    """Return the input of the price limit of all jobs, stored or as typed."""
    present = "" if most_micro is None or typed else to_text(most_micro)
    return request_inputs(
        PriceLimitRequest, ("max_price",), typed, errors, defaults={"max_price": present}
    )


def with_pool_time(fields: Sequence[Field], now: datetime) -> list[Field]:
    """Return the fields; the one of an end shows the pool's time and an example of it."""
    shown = _("pool time, now {now} UTC").format(
        now=instant_text(now.replace(second=0, microsecond=0))
    )
    return [
        replace(field, unit=shown, hint=f"{field.hint} {_example(now)}")
        if field.name == "until"
        else field
        for field in fields
    ]


def end_errors(typed: Mapping[str, str], now: datetime) -> dict[str, str]:
    """Return the error of an end that is no day and no time; empty if it is one."""
    end = text(typed, "until").strip()
    return {"until": _example(now)} if end and instant(end) is None else {}


def _example(now: datetime) -> str:
    day = (now.astimezone(UTC) + timedelta(days=3)).date()
    return _("Enter a day or a time, such as {day} or {day}T08:00.").format(day=day)


ASK_FIELDS = ("gpu_type", "gpus", "until", "reason")


def ask_fields(
    gpu_types: Sequence[str],
    chosen: str,
    typed: Mapping[str, str],
    errors: Mapping[str, str],
    *,
    quotas: Mapping[str, int],
) -> list[Field]:
    """Return the inputs of a request for quota; `chosen`: the GPU type of the link, if any.

    `quotas`: the present GPUs by type.
    """
    fields = request_inputs(
        QuotaAskRequest,
        ASK_FIELDS,
        typed,
        errors,
        defaults={"gpu_type": chosen},
        choices={"gpu_type": tuple((name, name) for name in gpu_types)},
    )
    label = _new_total(gpu_types, quotas)
    return [replace(field, label=label) if field.name == "gpus" else field for field in fields]


def _new_total(gpu_types: Sequence[str], quotas: Mapping[str, int]) -> str:
    """Return the label of the requested GPUs, with the present ones."""
    if not quotas:
        return _("New total")
    now = ", ".join(
        f"{thousands(gpus)} {name}" if len(gpu_types) > 1 else thousands(gpus)
        for name, gpus in quotas.items()
    )
    return _("New total (now {gpus})").format(gpus=now)


def total_errors(typed: Mapping[str, str], quotas: Mapping[str, int]) -> dict[str, str]:
    """Return the error of a total that is no whole number, such as "+20"; empty if it is one."""
    total = text(typed, "gpus").strip()
    if not total or whole(total) is not None:
        return {}
    example = quotas.get(text(typed, "gpu_type"), 0) + max(1, whole(total.removeprefix("+")) or 1)
    return {"gpus": _("Enter the new total, such as {gpus}.").format(gpus=example)}
