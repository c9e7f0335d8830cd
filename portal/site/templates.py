"""Templates without the layout of their source: a page carries no indentation."""

from __future__ import annotations

import re

from django.template import Origin
from django.template.loaders import filesystem

# A break of a line with what is around it; HTML reads it as one space.
LAYOUT = re.compile(r"[ \t]*\n\s*")
# Tags that write nothing take the rest of their line with them.
SILENT = re.compile(r"(\{% (?:endcomment|load [^%]*) %\})\s+")
# Behind a tag it stays a break: the first one in a <textarea> is no part of its text.
BEHIND_A_TAG = re.compile(r"(?<=>)[ \t]*\n\s*")


class Loader(filesystem.Loader):
    """Reads templates as they are laid out for people, and leaves that layout out.

    Words stay apart by one space; the last break of a file goes, so that a tag that is made of a
    template can stand inside a sentence. Only a template's own text is concerned: what a `<pre>`
    or a `<textarea>` holds comes from a variable.
    """

    def get_contents(self, origin: Origin) -> str:
        """Return a template's source, as the engine shall read it."""
        source = SILENT.sub(r"\1", super().get_contents(origin))
        source = BEHIND_A_TAG.sub("\0", source)
        return LAYOUT.sub(" ", source).replace("\0", "\n").strip()
