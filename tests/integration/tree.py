"""Run a real `manage.py up` in a temporary data folder, for tests that stop, kill and start it."""

import contextlib
import gzip
import http.client
import itertools
import os
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import psycopg

from portal.embedded import folders
from portal.embedded.postgres import Postgres
from portal.embedded.watchdog import alive
from tests.kept import copy_cluster
from tests.tools import PATIENCE_S, eventually

ROOT = Path(__file__).resolve().parents[2]
_numbers = itertools.count(1)


class RunningTree:
    """A run of the portal, whose output is kept for the message of a failure."""

    def __init__(
        self,
        data: Path,
        port: int,
        command: Sequence[str] = ("manage.py", "up"),
        **environment: str,
    ) -> None:
        self.port = port
        self.data = data
        self.output = data.parent / f"output-{next(_numbers)}.txt"
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                cwd=ROOT,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={
                    **_inherited(),
                    "EVENSHARE_DATA_DIR": str(data),
                    "PORT": str(port),
                    **environment,
                },
            )

    def wait_until_ready(self) -> None:
        eventually(lambda: "ready in" in self.text() or self.ended())
        assert not self.ended(), self.text()

    def text(self) -> str:
        return self.output.read_text()

    def ended(self) -> bool:
        return self.process.poll() is not None

    def pause_all_pools_but(self, name: str) -> None:
        """Pause the demo's other pools, which use as much CPU time as the test itself."""
        self.query(
            "UPDATE scheduling_poolclock SET paused = true FROM scheduling_pool p"  # noqa: S608 - a test's
            f" WHERE p.id = pool_id AND p.name <> '{name}'"
        )

    def query(self, statement: str, *, role: str = "evenshare_app") -> object:
        """Return the first value, or None while the database does not answer."""
        host = str((self.data / "run").resolve() / "pg")
        try:
            with psycopg.connect(
                host=host, user=role, dbname="evenshare", connect_timeout=5
            ) as connection:
                connection.execute("SET evenshare.scope = 'site'")
                cursor = connection.execute(statement)
                row = cursor.fetchone() if cursor.description else None
        except psycopg.OperationalError:
            return None
        return row[0] if row else None

    def manage(self, *words: str, **environment: str) -> str:
        """Return the output of a management command in its own process on this data folder."""
        done = subprocess.run(
            [sys.executable, "manage.py", *words],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            env={**_inherited(), "EVENSHARE_DATA_DIR": str(self.data), **environment},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def front_page(self) -> int:
        """Return the status of the front page, or 0 while no server answers."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.port}/", timeout=PATIENCE_S
            ) as reply:
                return int(reply.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def fetch(self, path: str) -> http.client.HTTPResponse:
        """Return an answer as a browser would get it, compressed."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
        return connection.getresponse()

    def page(self, path: str) -> str:
        """Return the text of a long answer, which is compressed."""
        return gzip.decompress(self.fetch(path).read()).decode()

    def processes(self) -> dict[int, str]:
        """Return every living process that was started with this data folder."""
        return processes_of(self.data)

    def find(self, words: str) -> int:
        """Return the first process whose command line has these words, or 0."""
        return next((pid for pid, line in self.processes().items() if words in line), 0)

    def kill(self, words: str, sent: signal.Signals = signal.SIGKILL) -> int:
        """Signal the process whose command line has these words, once it exists; return its id.

        It never signals id 0, which would end the tests themselves.
        """
        pid = eventually(lambda: self.find(words))
        os.kill(pid, sent)
        return pid

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(PATIENCE_S)

    def end(self) -> None:
        """End all processes, whatever state the test left."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait(PATIENCE_S)
        eventually(lambda: not self.processes())
        if (self.data / "run").is_symlink():
            shutil.rmtree((self.data / "run").readlink(), ignore_errors=True)


def migrated(data: Path) -> Path:
    """Create a data folder with a migrated database, so that a start does not migrate it."""
    data.parent.mkdir(parents=True, exist_ok=True)
    postgres = Postgres(folders.prepare(data))
    # As in `tests.plugin`, PostgreSQL runs as another user and cannot read a private folder.
    if postgres.identity.user is None:
        copy_cluster(postgres.cluster)
    return data


def _inherited() -> dict[str, str]:
    """Return the environment without the variables of the tests' servers."""
    servers = ("DATABASE_URL", "OWNER_DATABASE_URL", "REDIS_URL")
    return {name: text for name, text in os.environ.items() if name not in servers}


def processes_of(data: Path) -> dict[int, str]:
    mark = f"EVENSHARE_DATA_DIR={data}\0".encode()
    # PostgreSQL and Valkey overwrite their environment, but the folder is in their command line.
    places = [str(data), str((data / "run").resolve())]
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            marked = mark in (entry / "environ").read_bytes() + b"\0"
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if (marked or any(place in line for place in places)) and alive(int(entry.name)):
            found[int(entry.name)] = line
    return found
