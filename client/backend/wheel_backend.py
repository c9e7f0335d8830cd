"""Builds the package with only the standard library (PEP 517 and 660).

`pip install ./client` then needs no package index, so it works on a login node without a network,
and in an environment with hashed locks. The package is pure Python with two commands. Its wheel
consists of its files, three lines of metadata and a list of checksums.
"""

import base64
import hashlib
import io
import re
import tarfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
SOURCE = HERE / "src"
# Every file gets the earliest time that a zip file can hold, so equal sources make equal wheels.
WHEN = (1980, 1, 1, 0, 0, 0)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    package = sorted(
        path
        for path in SOURCE.rglob("*")
        if path.is_file() and path.suffix != ".pyc" and "__pycache__" not in path.parts
    )
    files = {path.relative_to(SOURCE).as_posix(): path.read_bytes() for path in package}
    return _write(Path(wheel_directory), files)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """Write a wheel with the commands and a path to the sources."""
    return _write(Path(wheel_directory), {"evenshare_client.pth": f"{SOURCE}\n".encode()})


def build_sdist(sdist_directory, config_settings=None):
    base = "{}-{}".format(_project("name"), _project("version"))
    target = Path(sdist_directory) / f"{base}.tar.gz"
    with tarfile.open(target, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for part in ("pyproject.toml", "README.md", "backend", "src"):
            archive.add(HERE / part, f"{base}/{part}", filter=_without_caches)
        data = _metadata().encode()
        info = tarfile.TarInfo(f"{base}/PKG-INFO")
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return target.name


def _write(folder, files):
    base = "{}-{}".format(_project("name"), _project("version"))
    info = f"{base}.dist-info"
    files = {
        **files,
        f"{info}/METADATA": _metadata().encode(),
        f"{info}/WHEEL": (
            b"Wheel-Version: 1.0\nGenerator: evenshare\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
        f"{info}/entry_points.txt": _commands().encode(),
    }
    rows = [f"{name},{_checksum(data)},{len(data)}" for name, data in files.items()]
    record = "\n".join([*rows, f"{info}/RECORD,,", ""])
    target = folder / f"{base}-py3-none-any.whl"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in [*files.items(), (f"{info}/RECORD", record.encode())]:
            entry = zipfile.ZipInfo(name, WHEN)
            entry.external_attr = 0o644 << 16
            wheel.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return target.name


def _checksum(data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
    return "sha256=" + digest.decode()


def _metadata():
    return (
        "Metadata-Version: 2.1\n"
        "Name: {}\nVersion: {}\nSummary: {}\nLicense: {}\nRequires-Python: {}\n"
        "{}Description-Content-Type: text/markdown\n\n{}"
    ).format(
        *(_project(k) for k in ("name", "version", "description", "license", "requires-python")),
        "".join(_extras()),
        (HERE / "README.md").read_text("utf-8"),
    )


def _extras():
    for line in _table("project.optional-dependencies").splitlines():
        if not line.startswith("#"):
            name, _, needed = line.partition(" = ")
            yield f"Provides-Extra: {name}\n"
            for package in re.findall(r'"([^"]+)"', needed):
                yield f"Requires-Dist: {package}; extra == '{name}'\n"


def _commands():
    return "[console_scripts]\n" + _table("project.scripts").replace('"', "") + "\n"


def _table(name):
    return _toml().partition(f"[{name}]\n")[2].partition("\n\n")[0]


def _project(key):
    # Python 3.9 has no TOML parser. A regular expression suffices, because this package's own file
    # has a known format.
    return re.search(rf'(?m)^{key} = "(.*)"$', _toml()).group(1)


def _toml():
    return (HERE / "pyproject.toml").read_text("utf-8")


def _without_caches(entry):
    return None if "__pycache__" in entry.name else entry
