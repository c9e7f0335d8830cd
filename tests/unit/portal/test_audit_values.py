"""Values of audit records have the names and texts of forms, in the language of the page."""

from __future__ import annotations

import pytest
from django.utils.translation import override

from portal.operate.text.audit import Difference, differences
from portal.operate.text.audit_values import value_name


class TestValueName:
    @pytest.mark.parametrize(
        ("path", "english", "german"),
        [
            ("lease_s", "Lease length, s of the pool", "Leaselänge, s des Pools"),
            ("options, min_runtime_s", "Min runtime, s", "Mindestlaufzeit, s"),
            ("speeds, v100", "Speed on, v100", "Geschwindigkeit auf, v100"),
            ("ends_at", "End", "Ende"),
            ("not_known", "Not known", "Not known"),
        ],
    )
    def test_is_label_of_form(self, path: str, english: str, german: str) -> None:
        assert value_name(path) == english
        with override("de"):
            assert value_name(path) == german


class TestDifferences:
    def test_show_texts_of_codes_and_numbers_of_language(self) -> None:
        before = {"role": "viewer", "period_amount": "10.000000", "period_kind": "month"}
        with override("de"):
            shown = list(differences(before, {"role": "manager", "period_amount": "1200.5"}))
        assert shown == [
            Difference("Rolle", "Leser", "Manager"),
            Difference("Budget", "10,00", "1.200,50"),
            Difference("Zeitraum des Budgets", "Kalendermonat", ""),
        ]
