"""Published speeds of models on GPU types, for the demo's job types."""

import csv
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import lru_cache

from evenshare_core.domain.profiles import speedups_normal
from portal.demo.data import DATA

# In reading order; the first file wins if both have a name.
FILES = ("gandiva_fair_speedups.csv", "gavel_throughputs.csv")
_UNNAMED = re.compile(r"[^a-z0-9]+")


@lru_cache(maxsize=1)
def published_speeds() -> Mapping[str, Mapping[str, int]]:
    """Return model -> GPU type -> thousandths of its speed on its slowest type.

    Names are slugs: "ResNet-18 (batch size 64)" is `resnet-18-64`.
    """
    by_model: dict[str, Mapping[str, int]] = {}
    for name in FILES:
        for model, speeds in _rows(name):
            by_model.setdefault(model, speedups_normal(speeds))
    return by_model


def _rows(name: str) -> Iterator[tuple[str, dict[str, Fraction]]]:
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            model = row.pop("job_type").lower().replace("batch size ", "")
            yield _UNNAMED.sub("-", model).strip("-"), {k: Fraction(v) for k, v in row.items()}
