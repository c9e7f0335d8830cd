"""Interactive charts: Plotly figures from frozen values, each with its table.

Like the SVG builders, these modules have no clock and no I/O. Colours are variables of the
stylesheet (`var(--accent)`); static/charts.js resolves them in the current theme.
"""
