"""A bare number in a template is for programs, as in an attribute of SVG.

Filters of `portal.charts.figures` format numbers for people.
"""

DECIMAL_SEPARATOR = "."
