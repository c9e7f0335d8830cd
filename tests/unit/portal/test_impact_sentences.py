"""Test the sentence of a preview of the next round."""

from __future__ import annotations

from datetime import UTC, datetime

from portal.charts.tenants import TenantBadge
from portal.operate.text.impact import Preview, preview, settings_preview
from scheduling.services.quota_impact import Impact
from scheduling.services.round_impact import ImpactRow, Standing
from scheduling.services.settings_impact import SettingsImpact
from tenants.services.quotas import QuotaPlan

AT = datetime(2026, 1, 1, tzinfo=UTC)
BADGES = {
    key: TenantBadge(name, key, name[:2].upper())
    for key, name in enumerate(("Aspen", "Birch", "Cedar", "Dune"), start=1)
}


def sentence(*moves: tuple[int, str, int]) -> str:
    """Return the sentence for a round in which tenants get `gpus` more GPUs of a type."""
    rows = tuple(
        ImpactRow(tenant, gpu_type, Standing(got=20), Standing(got=20 + gpus))
        for tenant, gpu_type, gpus in moves
    )
    impact = SettingsImpact(1, AT, rows)
    return settings_preview(impact, BADGES).sentence


class TestPoolWithSeveralTypes:
    def test_names_type_of_each_change(self) -> None:
        """A tenant may gain GPUs of one type and lose GPUs of another."""
        said = sentence((1, "k80", -11), (1, "v100", 2))
        assert said == "Aspen gets 11 GPUs of k80 fewer; Aspen gets 2 GPUs of v100 more."

    def test_counts_other_lines_instead_of_tenants(self) -> None:
        """Regression: 4 lines of 2 tenants gave "1 other tenant", and 10 lines of 5 gave 7."""
        said = sentence((1, "k80", -9), (2, "k80", 8), (1, "v100", 2), (2, "v100", -1))
        assert said.endswith("Aspen gets 2 GPUs of v100 more; 1 other line moves as well.")


class TestPoolWithOneType:
    def test_names_no_type_and_counts_tenants(self) -> None:
        said = sentence((1, "gpu", 4), (2, "gpu", -3), (3, "gpu", 2), (4, "gpu", -1))
        assert said == (
            "Aspen gets 4 GPUs more; Birch gets 3 GPUs fewer; Cedar gets 2 GPUs more;"
            " 1 other tenant moves as well."
        )


class TestFairShares:
    def test_that_are_not_named_are_counted(self) -> None:
        rows = tuple(
            ImpactRow(tenant, "gpu", Standing(deserved=20), Standing(deserved=after))
            for tenant, after in enumerate((27, 18, 18, 17), start=1)
        )
        impact = Impact(1, AT, rows, plan=QuotaPlan(1, AT, {}, {(1, 7): ()}))
        said = preview(impact, BADGES, {7: "gpu"}, "").sentence
        assert said.endswith("; 1 other fair share changes; no GPU moves yet.")


class TestUnchangedLines:
    def test_are_counted_as_lines_with_several_types(self) -> None:
        """Regression: with five tenants and three types, the sentence named 8 other tenants."""
        assert left_out("k80", "v100") == ("8 lines of tenants and GPU types are unchanged.")

    def test_are_counted_as_tenants_with_one_type(self) -> None:
        assert left_out("gpu") == "8 other tenants are unchanged."


def left_out(*gpu_types: str) -> str:
    """Return the text about eight unchanged lines in a preview of quotas."""
    rows = tuple(ImpactRow(1, name, Standing(), Standing()) for name in gpu_types)
    impact = Impact(1, AT, rows, plan=QuotaPlan(1, AT, {}, {}))
    return Preview(impact, "", (), unchanged=8).unchanged_text
