"""Server-made charts: pure Python, no Django, no clock, no I/O.

Each builder takes plain values or small frozen dataclasses and returns `svg.Markup`, which Django's
autoescape does not escape again. Builders escape every text that they receive. The contract for
page authors is docs/look.md.
"""
