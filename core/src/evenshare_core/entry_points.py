"""Entry points of installed packages. A faulty package affects no other."""

from collections.abc import Collection, Iterator
from importlib.metadata import EntryPoint, distributions
from typing import NamedTuple


class EntryGroup(NamedTuple):
    """A group of entry points; their faults name the `noun` of an entry and the group's `owner`."""

    name: str
    noun: str
    owner: str

    def read(self, built_in: Collection[str]) -> tuple[dict[str, EntryPoint], dict[str, str]]:
        """Return the usable entry points, and why others are skipped, both by name.

        If two packages declare the same name, neither is used, because their order is arbitrary.
        """
        declared: dict[str, list[EntryPoint]] = {}
        for entry in self._entries():
            declared.setdefault(entry.name, []).append(entry)
        faults = {}
        for name, entries in sorted(declared.items()):
            if name in built_in:
                taken = f"{self.owner} has one of this name"
            elif len(entries) > 1:
                taken = f"{self.noun} names must be unique"
            else:
                continue
            packages = " and ".join(sorted(map(_package, entries)))
            faults[name] = f"{self.noun} {name!r} of {packages} is skipped: {taken}"
        usable = {name: one[0] for name, one in sorted(declared.items()) if name not in faults}
        return usable, faults

    def not_loaded(self, entry: EntryPoint, error: BaseException) -> str:
        """Return why an entry point cannot be used, after its import or check raised `error`."""
        why = f"{type(error).__name__}: {error}"
        return f"{self.noun} {entry.name!r} of {_package(entry)} does not load: {why}"

    def _entries(self) -> Iterator[EntryPoint]:
        """Yield the declared entry points. A package with unreadable metadata has none.

        If a package is installed twice, only the first copy on the path is used.
        """
        seen: set[str] = set()
        for package in distributions():
            try:
                name = package.name
                entries = package.entry_points.select(group=self.name)
            except Exception:  # noqa: BLE001, S112 - another package's metadata, broken in any way
                continue
            if name not in seen:
                seen.add(name)
                yield from entries


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value
