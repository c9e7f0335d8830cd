"""Throughput over time, one line per policy that decided rounds."""

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from evenshare_core.units import ONE_MILLI
from portal.charts.explore.chart import Label, PageChart, Rule, Series, Value
from portal.charts.explore.columns import column
from portal.charts.explore.looks import line_look
from portal.charts.figures import thousands
from scheduling.selectors.pools.throughput import ThroughputPoint

NAMED = 6  # Number of policy changes with a label, from the last one; more labels would overlap.


def throughput_chart(
    moments: Sequence[ThroughputPoint], now: datetime, *, key: str, title: str, file: str
) -> PageChart:
    """Draw a line per policy in time order, with gaps while others decide; `now`: the end."""
    switches = [(b.at, b.policy) for a, b in pairwise(moments) if a.policy != b.policy]
    highest = max(moment.milli for moment in moments) / ONE_MILLI
    now_at = moments[-1].milli / ONE_MILLI
    policies = list(dict.fromkeys(moment.policy for moment in moments))
    return PageChart(
        key=key,
        title=title,
        text=_(
            "GPUs \N{MULTIPLICATION SIGN} speed of their jobs, in GPUs of each job's slowest"
            " type. Dashed line: change of policy."
        ),
        series=tuple(_line(place, policy, moments, now) for place, policy in enumerate(policies)),
        y=(0.0, max(highest, 1) * 1.2),
        unit=_("throughput"),
        file=file,
        labels=(Label(_("{value} now").format(value=thousands(now_at, 1)), now_at),),
        rules=tuple(Rule(at, policy) for at, policy in switches[-NAMED:]),
    )


def _line(place: int, policy: str, moments: Sequence[ThroughputPoint], now: datetime) -> Series:
    """Return the rounds of one policy as a series, with a gap where another policy takes over.

    At the change, a value and the gap have the same instant; the table and CSV show only the gap.
    """
    keys: list[datetime] = []
    values: list[Value] = []
    for moment, after in zip(moments, [*moments[1:], None], strict=True):
        if moment.policy != policy:
            continue
        value = moment.milli / ONE_MILLI
        keys.append(moment.at)
        values.append(value)
        if after is None:
            keys.append(max(now, moment.at))
            values.append(value)
        elif after.policy != policy:
            keys += [after.at, after.at]
            values += [value, None]
    head = column(
        gettext_noop("throughput under {policy}, GPUs of each job's slowest type"), policy=policy
    )
    return Series(policy, head, keys, values, line_look(place), places=3)
