"""The demo's static files, collected as in production's image: by content hash, compressed.

They are collected at the start, into the data folder, and only if a source has changed: a fresh
clone needs no extra step. Production collects when its image is built (see Dockerfile).
"""

from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command

STAMP = ".collected"
# Files that are not linked: DRF's own pages, and a second viewer of the API's description.
UNUSED = ("rest_framework", "redoc")


def collect() -> bool:
    """Collect the files unless they are up to date; return whether they were collected."""
    if settings.PRODUCTION or not settings.COLLECTED:
        return False
    stamp, sources = Path(settings.STATIC_ROOT) / STAMP, _sources()
    if stamp.is_file() and stamp.read_text() == sources:
        return False
    stamp.unlink(missing_ok=True)
    call_command(
        "collectstatic", interactive=False, verbosity=0, clear=True, ignore_patterns=list(UNUSED)
    )
    stamp.write_text(sources)
    return True


def _sources() -> str:
    """Return a hash of all sources, their paths, and the version of the packing program."""
    known = sha256(version("whitenoise").encode())
    for finder in get_finders():
        for path, storage in finder.list(list(UNUSED)):
            state = Path(storage.path(path)).stat()
            known.update(f"{path}\0{state.st_size}\0{state.st_mtime_ns}\n".encode())
    return known.hexdigest()
