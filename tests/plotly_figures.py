"""Charts validated by the package `plotly`, which rejects what plotly.js does not know."""

from __future__ import annotations

import json
from typing import Any

import plotly.graph_objects as go

from portal.charts.explore.chart import PageChart


def drawn(chart: PageChart) -> go.Figure:
    """Return a chart's figure, validated attribute by attribute.

    Raises:
        ValueError: plotly.js does not know an attribute, or refuses its value.
    """
    # Without this, the package would add its own template.
    layout = {**chart.figure["layout"], "template": "none"}
    figure = go.Figure(chart.figure["data"], layout)
    read = json.loads(figure.to_json())
    del read["layout"]["template"]
    # The package neither drops nor adds anything, so the page may send the chart without it.
    assert _told(read) == _told(json.loads(json.dumps(chart.figure)))
    return figure


def _told(value: Any) -> Any:
    """Return the value without empty objects and lists, some of which the package leaves out."""
    if isinstance(value, list):
        return [_told(one) for one in value]
    if not isinstance(value, dict):
        return value
    told = {name: _told(one) for name, one in value.items()}
    return {name: one for name, one in told.items() if one not in ({}, [])}
