"""A template loader that removes the layout of the source: pages have no indentation."""

import re

from django.template import Origin
from django.template.loaders import filesystem

# A line break with the space around it; HTML reads it as one space.
LAYOUT = re.compile(r"[ \t]*\n\s*")
# Tags without output also remove the rest of their line.
SILENT = re.compile(r"(\{% (?:endcomment|load [^%]*|get_current_language [^%]*) %\})\s+")
# Keep the line break after a tag: HTML ignores the first one in a <textarea>.
BEHIND_A_TAG = re.compile(r"(?<=>)[ \t]*\n\s*")


class Loader(filesystem.Loader):
    """Reads templates without the line breaks and indentation of their source.

    Words stay separated by one space. A file's last line break is removed, so that a tag made of a
    template can be inside a sentence. Only a template's own text is affected: the content of a
    `<pre>` or a `<textarea>` comes from a variable.
    """

    def get_contents(self, origin: Origin) -> str:
        """Return a template's source without its layout."""
        return without_layout(super().get_contents(origin))


def without_layout(source: str) -> str:
    """Return a template's source without its line breaks and indentation."""
    source = BEHIND_A_TAG.sub("\0", SILENT.sub(r"\1", source))
    return LAYOUT.sub(" ", source).replace("\0", "\n").strip()
