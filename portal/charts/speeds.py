"""Formats of speeds and throughputs."""

from collections.abc import Mapping

from evenshare_core.units import ONE_MILLI
from portal.charts.figures import thousands


def value_text(milli: int, places: int = 1) -> str:
    return thousands(milli / ONE_MILLI, places)


def profile_texts(profiles: Mapping[str, Mapping[str, int]]) -> list[tuple[str, str]]:
    """Return each job type, by name, with its speeds as text, slowest GPU type first."""
    return [
        (
            name,
            ", ".join(
                f"{kind} \N{MULTIPLICATION SIGN}{value_text(speed, 2)}"
                for kind, speed in sorted(speeds.items(), key=lambda item: (item[1], item[0]))
            ),
        )
        for name, speeds in sorted(profiles.items())
    ]
