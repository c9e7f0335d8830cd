"""Reasons, errors, forms and mails in German: plurals, numbers, and the receiver's language."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import uuid4

import pytest
from django.conf import LazySettings
from django.core import mail
from django.utils import translation

from evenshare_core.domain.reasons import Reason
from scheduling.models.messages import Channel, MessageKind
from scheduling.outbox.bodies import Outgoing
from scheduling.outbox.deliver import Parcel, deliver
from scheduling.requests.nodes import NodeRequest
from scheduling.selectors.jobs.reasons import ending_text, why
from tenants.input.errors import InvalidInputError
from tenants.input.requests import read_request, request_fields

NOW = datetime(2026, 11, 30, tzinfo=UTC)


class TestReasons:
    @pytest.mark.parametrize(
        ("free", "words"), [(1, "1 war zu Beginn"), (1200, "1.200 waren zu Beginn")]
    )
    def test_have_german_plurals_and_numbers(self, free: int, words: str) -> None:
        with translation.override("de"):
            reason = why(Reason.NO_FREE_GPUS, {"needed": 2000, "free": free})
        assert reason.text == "keine freien GPUs"
        assert reason.sentence.startswith("Er braucht 2.000 GPUs zugleich; ")
        assert words in reason.sentence

    def test_have_decimal_comma(self) -> None:
        with translation.override("de"):
            prices = {"price_micro": 1_250_000, "max_price_micro": 1_000_000}
            assert "kostet 1,25 Credits" in why(Reason.PRICE_ABOVE_MAX, prices).sentence

    def test_are_english_without_a_page(self) -> None:
        assert why(Reason.NO_FREE_GPUS).text == "no free GPUs"
        assert ending_text("finished") == "the job finished"


class TestInput:
    def test_errors_and_hints_are_german(self) -> None:
        with translation.override("de"):
            with pytest.raises(InvalidInputError) as refused:
                read_request(NodeRequest, {"pool": "a", "name": "X!", "gpus": 3, "cpus": "x"})
            hint = request_fields(NodeRequest)["gpu_type"].hint
        reasons = refused.value.by_field
        assert (
            reasons["name"] == "Verwenden Sie 1 bis 63 Kleinbuchstaben, Ziffern und Bindestriche."
        )
        assert reasons["cpus"] == "muss eine ganze Zahl sein"
        assert hint == "Ein neuer Typ bekommt die Standardeinstellungen für Preise."


class TestMail:
    @pytest.mark.parametrize(
        ("language", "offered", "subject"),
        [
            ("de", ("en", "de"), "[Evenshare] train ist gestartet"),
            ("de", ("en",), "[Evenshare] train started"),
            ("", ("en", "de"), "[Evenshare] train started"),
        ],
    )
    def test_is_in_the_language_of_its_receiver(
        self, settings: LazySettings, language: str, offered: tuple[str, ...], subject: str
    ) -> None:
        settings.EMAIL_HOST = "mail.example"
        settings.LANGUAGES = [(one, one) for one in offered]
        data = {
            "job": {"id": str(uuid4()), "name": "train"},
            "pool": "a",
            "tenant": "north",
            "gpus": 1,
            "gpu_type": "v100",
        }
        message = Outgoing(uuid4(), MessageKind.JOB_STARTED.value, NOW, data)
        parcel = Parcel(uuid4(), Channel.MAIL.value, "a@example.com", [message], language)
        reply, _ = deliver(parcel, NOW)
        assert reply.is_ok
        assert mail.outbox[-1].subject == subject
