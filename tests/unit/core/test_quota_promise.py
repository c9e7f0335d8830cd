"""Test what each policy promises about quotas, and a guarantee's time limit."""

from __future__ import annotations

from typing import Any

import pytest

from evenshare_core.policies.options import OptionError
from evenshare_core.policies.quota_promise import PoolLengths, QuotaPromise, QuotaPromiseKind
from evenshare_core.policies.registry import DEFAULT, POLICIES, UnknownPolicyError, quota_promise
from evenshare_core.units import SECOND_US

LENGTHS = PoolLengths(round_us=10 * SECOND_US, notice_us=30 * SECOND_US)


def promised(**options: Any) -> QuotaPromise:
    return quota_promise("evenshare", options, LENGTHS)


class TestGuarantee:
    """The guarantee of evenshare without promised starts."""

    def test_time_limit_is_minimum_runtime_plus_round_plus_notice(self) -> None:
        promise = promised(promises=False)
        assert promise.kind is QuotaPromiseKind.GUARANTEED
        assert [part.length_us // SECOND_US for part in promise.parts] == [300, 10, 30]
        assert promise.within_us == 340 * SECOND_US
        assert promised(promises=False, min_runtime_s=900).within_us == 940 * SECOND_US

    def test_time_limit_has_no_round_if_events_trigger_rounds(self) -> None:
        promise = quota_promise("evenshare", {"promises": False}, LENGTHS._replace(round_us=0))
        assert promise.within_us == 330 * SECOND_US

    def test_requires_low_past_use_unless_preset_is_tight(self) -> None:
        standard = promised(promises=False)
        tight = promised(promises=False, preset="tight")
        assert tight.within_us == (60 + 10 + 30) * SECOND_US
        (owed,) = set(standard.conditions) - set(tight.conditions)
        assert "less than 95 % of its fair share" in owed
        assert len(tight.conditions) == 2

    def test_is_long_term_target_if_option_is_off(self) -> None:
        promise = promised(promises=False, guarantee=False)
        assert promise.kind is QuotaPromiseKind.LONG_TERM
        assert (promise.within_us, promise.parts, promise.conditions) == (None, (), ())


class TestPromisedStarts:
    def test_time_limit_is_lease_plus_two_rounds_plus_notice(self) -> None:
        lengths = LENGTHS._replace(lease_us=900 * SECOND_US)
        promise = quota_promise("evenshare", {}, lengths)
        assert promise.kind is QuotaPromiseKind.GUARANTEED
        assert [part.length_us // SECOND_US for part in promise.parts] == [900, 20, 30]
        assert all(text.endswith(".") for text in (promise.text, *promise.conditions))
        assert "as long again for each" in promise.text
        off = quota_promise("evenshare", {"guarantee": False}, lengths)
        assert off == promise
        # A lease may outlast its term if its minimum runtime is longer.
        long = quota_promise("evenshare", {"min_runtime_s": 1200}, lengths)
        assert long.within_us == 1250 * SECOND_US

    def test_applies_to_default_policy(self) -> None:
        assert quota_promise(DEFAULT, {}, LENGTHS).kind is QuotaPromiseKind.GUARANTEED


@pytest.mark.parametrize(
    ("policy", "kind"),
    [
        ("ltgf", QuotaPromiseKind.LONG_TERM),
        ("yarn_cs", QuotaPromiseKind.RESERVED),
        ("oef", QuotaPromiseKind.WEIGHT),
        ("gavel", QuotaPromiseKind.WEIGHT),
        ("fifo", QuotaPromiseKind.NOT_GUARANTEED),
        ("srtf", QuotaPromiseKind.NOT_GUARANTEED),
    ],
)
def test_other_policies_have_no_time_limit(policy: str, kind: QuotaPromiseKind) -> None:
    promise = quota_promise(policy, {}, LENGTHS)
    assert (promise.kind, promise.within_us) == (kind, None)
    assert promise.text == POLICIES[policy].quota_text


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_texts_are_sentences(name: str) -> None:
    promise = quota_promise(name, {}, LENGTHS)
    assert all(text.endswith(".") for text in (promise.text, *promise.conditions))
    assert bool(promise.parts) == (promise.kind is QuotaPromiseKind.GUARANTEED)


def test_rejects_invalid_settings() -> None:
    with pytest.raises(OptionError, match="min_runtime_s"):
        promised(min_runtime_s=-1)
    with pytest.raises(UnknownPolicyError):
        quota_promise("magic", {}, LENGTHS)
