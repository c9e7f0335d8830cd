"""Server-made charts: pure Python, no Django, no clock, no I/O.

Each builder takes plain values or small frozen dataclasses and returns `svg.Markup`, which
Django's autoescape leaves as it is. Every text that reaches a builder is escaped there.
The contract for page authors is docs/look.md.
"""
