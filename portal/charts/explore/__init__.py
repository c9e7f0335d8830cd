"""Charts to explore: Plotly figures from frozen values, with the table beneath them.

As pure as the builders of SVG beside them: no clock, no I/O. Colours are names of the stylesheet
(`var(--accent)`), which static/charts.js looks up in the present theme.
"""
