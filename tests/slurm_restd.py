"""A real slurmrestd with a real cluster, if Debian's packages of both are installed."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_bytes
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from portal.demo.slurm.cluster import SlurmCluster
from portal.demo.slurm.packages import LIBRARIES, find, how_to_install
from tests.slurm import SILENT_S, Kept, end_quickly, left_as_it_was, require_slurm
from tests.tools import eventually

PACKAGES = ("slurmrestd", "slurm-wlm-jwt-plugin")
# slurmrestd runs neither as root nor as SlurmUser, and SlurmUser runs the tests
NOBODY = 65534


def require_restd() -> None:
    """Require root and all packages, else skip; with REQUIRE_ALL=1 fail if a package is missing."""
    if find("slurmrestd") is None or not any(LIBRARIES.glob("*/slurm*/auth_jwt.so")):
        reason = f"slurmrestd is not installed ({how_to_install(list(PACKAGES))})"
        if os.environ.get("REQUIRE_ALL") == "1":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    if os.geteuid() != 0:
        pytest.skip("slurmrestd must run as another user than the cluster, which takes root")


@dataclass
class RealRestd:
    """A slurmrestd, run as the unprivileged user `nobody`, that can be stopped and restarted."""

    cluster: SlurmCluster
    folder: Path
    listen: str
    authentication: str = "rest_auth/jwt"
    process: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> Path:
        return self.folder / "socket"

    @property
    def token_file(self) -> Path:
        return self.folder / "token"

    @property
    def url(self) -> str:
        return self.listen if self.listen.startswith("unix:") else f"http://{self.listen}"

    @property
    def options(self) -> dict[str, Any]:
        return {"restd": {"url": self.url, "token_file": str(self.token_file)}}

    def write_token(self, *arguments: str) -> None:
        said = self.cluster.run("scontrol", "token", *arguments)
        self.token_file.write_text(said)
        self.token_file.chmod(0o600)

    def start(self) -> None:
        self.socket.unlink(missing_ok=True)
        own = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        program = [str(find("slurmrestd")), "-s", "openapi/v0.0.38", "-a", self.authentication]
        conf = {"SLURM_CONF": str(self.folder / "slurm.conf")}
        if self.authentication == "rest_auth/jwt":
            conf["SLURM_JWT"] = "daemon"
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*own, "--pdeathsig=KILL", *program, self.listen],
                env={**os.environ, **conf},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
            )
        eventually(self._listens)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def freeze(self) -> None:
        """Make slurmrestd accept connections without answering."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def _listens(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "log").read_text()
        family = socket.AF_UNIX if self.listen.startswith("unix:") else socket.AF_INET
        with socket.socket(family) as probe:
            host, _, port = self.listen.rpartition(":")
            address = str(self.socket) if family == socket.AF_UNIX else (host, int(port))
            return probe.connect_ex(address) == 0


@contextmanager
def own_restd(folder: Path, *, tcp: bool = False, **settings: Any) -> Iterator[RealRestd]:
    """Yield a cluster with a slurmrestd that a test may break, and a token for its user."""
    require_slurm()
    require_restd()
    folder.mkdir(parents=True, exist_ok=True)
    key = folder / "jwt.key"
    key.write_bytes(token_bytes(32))
    key.chmod(0o600)
    extra = ("AuthAltTypes=auth/jwt", f"AuthAltParameters=jwt_key={key}")
    with TemporaryDirectory(prefix="slurm-") as place:
        # Other users cannot enter the folders of tests, but slurmrestd must read slurm.conf and
        # reach MUNGE.
        Path(place).chmod(0o755)
        with SlurmCluster(
            folder, sockets=Path(place), extra=extra, **{"slurmd_timeout_s": SILENT_S, **settings}
        ) as cluster:
            restd = _made(cluster, Path(place) / "restd", tcp=tcp)
            try:
                restd.start()
                yield restd
            finally:
                restd.stop()
                end_quickly(cluster)


def _made(cluster: SlurmCluster, place: Path, *, tcp: bool) -> RealRestd:
    place.mkdir()
    os.chown(place, NOBODY, NOBODY)
    shutil.copy(cluster.conf, place / "slurm.conf")
    restd = RealRestd(cluster, place, f"unix:{place}/socket")
    if tcp:
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            restd.listen = f"127.0.0.1:{held.getsockname()[1]}"
    restd.write_token("lifespan=86400")
    return restd


@pytest.fixture(scope="session")
def kept_restd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept[RealRestd]]:
    """Yield a cluster with a slurmrestd, for all tests of a process that do not break it."""
    kept = Kept(lambda: own_restd(tmp_path_factory.mktemp("slurm")))
    yield kept
    kept.end()


@pytest.fixture
def slurm_restd(kept_restd: Kept[RealRestd]) -> Iterator[RealRestd]:
    """Yield a cluster like `slurm_cluster`, with a slurmrestd."""
    restd = kept_restd.get()
    with left_as_it_was(restd.cluster, kept_restd):
        yield restd
