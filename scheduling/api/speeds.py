"""Speeds as the API tells them: declared against measured."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers as s

from evenshare_core.domain.measured_speeds import Comparison
from evenshare_core.units import ONE_MILLI

SPEED = r"^[0-9]+\.[0-9]{3}$"


class SpeedCompared(s.Serializer[object]):
    """Declared against measured on one GPU type, times one and the same speed.

    `excess`: by which part the declared speed is above the measured one; `tolerance`: what the
    spreads explain of it. An excess above that is an `overclaim`.
    """

    gpu_type = s.CharField()
    declared = s.RegexField(SPEED)
    measured = s.RegexField(SPEED)
    excess = s.RegexField(r"^-?[0-9]+\.[0-9]{3}$")
    tolerance = s.RegexField(SPEED)
    overclaim = s.BooleanField()


def milli_text(milli: int) -> str:
    """Return thousandths with all their places."""
    return f"{'-' if milli < 0 else ''}{abs(milli) // ONE_MILLI}.{abs(milli) % ONE_MILLI:03d}"


def compared_json(one: Comparison) -> dict[str, Any]:
    """Return declared against measured on one GPU type."""
    return {
        "gpu_type": one.gpu_type,
        "declared": milli_text(one.declared_milli),
        "measured": milli_text(one.measured_milli),
        "excess": milli_text(one.excess_milli),
        "tolerance": milli_text(one.tolerance_milli),
        "overclaim": one.is_overclaim,
    }
