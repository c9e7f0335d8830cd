"""The methods that rounds use."""

from __future__ import annotations

from scheduling.formulations.oef_highs import Highs


class Fast(Highs):
    """HiGHS, until the special methods are here."""

    name = "fast"
