"""Errors in policies that the suite must see: one change each."""

from __future__ import annotations

from tests.mutants.mutant import pure

LTGF = "core/src/evenshare_core/policies/ltgf/policy.py"
LTGF_PICKS = "core/src/evenshare_core/policies/ltgf/picks.py"
ADMISSION = "core/src/evenshare_core/policies/shared/admission.py"
LTGF_TESTS = "tests/papers/test_ltgf.py"
GUARANTEE_TESTS = "tests/unit/core/test_guarantee.py::TestAForgottenGuarantee"
ROUND_TESTS = "tests/unit/core/test_decide_round.py"
ADMISSION_TESTS = "tests/unit/core/test_admission.py"

POLICY_MUTANTS = (
    # Fairness
    pure(
        "quotas_are_guaranteed_by_the_tight_preset_alone",
        "core/src/evenshare_core/policies/evenshare/room.py",
        "if not (self._options.is_tight or mine.is_owed()):",
        "if not self._options.is_tight:",
        f"{GUARANTEE_TESTS}::test_holds_under_the_policy_that_gives_it",
    ),
    # The order of picks, and where gangs go
    pure(
        "richest_tenant_first",
        "core/src/evenshare_core/policies/ltgf/queues.py",
        "return self.alloc / self.fair, 0.0",
        "return -self.alloc / self.fair, 0.0",
        f"{LTGF_TESTS}::TestTwoPhases",
    ),
    pure(
        "a_pick_is_not_charged_within_the_round",
        LTGF_PICKS,
        "claim.alloc += job.gpus * self.lease_us",
        "claim.alloc += 0",
        f"{LTGF_TESTS}::TestTwoPhases",
    ),
    pure(
        "a_queue_charges_nobody",
        LTGF,
        "claim.alloc += job.gpus * snapshot.lease_us",
        "claim.alloc += 0",
        "tests/unit/core/test_queue_order.py",
    ),
    pure(
        "a_refused_renewal_keeps_its_gpus",
        LTGF_PICKS,
        "free_capacity.drop(lease.placement)",
        "free_capacity.available.has(lease.placement)",
        f"{LTGF_TESTS}::TestARefusedRenewal",
    ),
    pure(
        "a_gang_is_reserved_for_too_early",
        "core/src/evenshare_core/policies/shared/reservation.py",
        "if since_us < late_us and",
        "if since_us <= late_us and",
        f"{LTGF_TESTS}::TestBigGangsTurn",
    ),
    # Own and borrowed, limits, prices
    pure(
        "quota_is_filled_in_pick_order",
        "core/src/evenshare_core/policies/shared/terms.py",
        "sorted(renewed, key=_by_start) if len(renewed) > 1 else renewed",
        "renewed",
        f"{ROUND_TESTS}::TestOwnAndBorrowed",
    ),
    pure(
        "quota_is_used_twice",
        ADMISSION,
        "        self.left -= own\n",
        "",
        f"{ROUND_TESTS}::TestOwnAndBorrowed",
    ),
    pure(
        "a_price_at_the_maximum_is_refused",
        ADMISSION,
        "price > job.max_price_micro",
        "price >= job.max_price_micro",
        ADMISSION_TESTS,
    ),
)
