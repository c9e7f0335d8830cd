"""Input files of a command; errors contain the file's name."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from evenshare_core.simulation.trace_text import GZIP_MAGIC


class InputError(ValueError):
    """An option or a file cannot be used; the message names it and gives the reason."""


@contextmanager
def opened(name: str) -> Iterator[TextIOWrapper]:
    """Open a text file, plain or gzip.

    Raises:
        InputError: it cannot be read, or the block raised a ValueError.
    """
    try:
        with Path(name).open("rb") as file:
            magic = file.read(2)
            file.seek(0)
            plain: Any = gzip.GzipFile(fileobj=file) if magic == GZIP_MAGIC else file
            yield TextIOWrapper(plain, encoding="utf-8-sig", newline="")
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from error
    except (EOFError, UnicodeDecodeError, zlib.error) as error:
        raise InputError(f"{name}: is damaged or not a text file ({error})") from error
    except ValueError as error:
        raise InputError(f"{name}: {error}") from error
