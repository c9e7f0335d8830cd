"""`manage.py up`: services, web, workers and beat as one process tree.

    supervisor --- watchdog (ends the tree when the supervisor is gone)
      stage 1: postgres, valkey          (unless DATABASE_URL, REDIS_URL are set)
               slurm                     (if DEMO_SLURM is set: `make run-slurm`)
      once:    portal.site.prepare            (grants, migrations, demo)
      stage 0: web-1, web-2, ..., worker-rounds, worker-default, beat
    shims of local jobs: started by workers, held by a lifeline (docs/executors.md)

A child that ends is restarted, later each time. Nothing here imports Django.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from portal.embedded import folders, slurm
from portal.embedded.children import NEVER, Child, Spec
from portal.embedded.clocks import FILE as CLOCK
from portal.embedded.errors import StartError
from portal.embedded.postgres import APP_ROLE, OWNER_ROLE, Postgres
from portal.embedded.pulse import BEAT, PATIENCE_S, PulseWatch
from portal.embedded.restarts import FILE as RESTARTS
from portal.embedded.restarts import note_restart
from portal.embedded.round_processes import round_processes
from portal.embedded.valkey import Valkey
from portal.embedded.watchdog import Watchdog
from portal.embedded.web_size import WebSize, web_size

HOST = "127.0.0.1"
LOGINS_MARK = "logins: "
USAGE = (
    "manage.py up starts web, workers, beat and, unless DATABASE_URL and REDIS_URL are set, their"
    " servers. It takes no arguments: settings are environment variables, such as"
    " PORT=8010 (docs/configuration.md)."
)
# Longest wait for a start. Only a hanging process takes so long: `_until` notices one that ends.
START_PATIENCE_S = 900.0
FIRST_WEB = "web-1"
PULSE_CHECK_S = 2.0
# PostgreSQL ends all its sessions and restarts within the same process.
BACKEND_KILLED = re.compile(r"was terminated by signal")
# A program given by its path, because the process tree must not import `scheduling`.
SHIM = folders.CHECKOUT / "scheduling/engine/executors/shim"


def main(arguments: Sequence[str] = ()) -> int:
    """Run until a signal; the exit status shows whether it could start.

    It takes no arguments: any argument prints the usage, and nothing starts.
    """
    begun = time.monotonic()
    if arguments:
        say(USAGE)
        return 0 if set(arguments) <= {"-h", "--help"} else 2
    try:
        port, size = chosen_port(), web_size(os.environ)
        round_count = round_processes(os.environ)
        if slurm.is_wanted():
            slurm.check_packages()
        place = folders.prepare(folders.locate().data)
        held = folders.lock(place, f"http://{HOST}:{port}/")
        listener = listen(port)
        folders.hold_lifeline(place)
        # Delete the counters of an earlier run (portal/site/shared_counts.py).
        shutil.rmtree(place.run / "web", ignore_errors=True)
        for name in (RESTARTS, CLOCK):
            (place.run / name).unlink(missing_ok=True)
        with Watchdog([held]) as watchdog:
            status = asyncio.run(Tree(place, listener, watchdog, size, round_count).run(begun))
        shutil.rmtree(place.run, ignore_errors=True)
    except StartError as error:
        say(str(error))
        return 1
    return status


class Tree:
    """The processes in the order of their start; `stop` ends them in the reverse order."""

    def __init__(
        self,
        place: folders.Folders,
        listener: socket.socket,
        watchdog: Watchdog,
        web: WebSize,
        round_count: int,
    ):
        self._place = place
        self._listener = listener
        self._watchdog = watchdog
        self._web = web
        self._round_count = round_count
        self._verbose = os.environ.get("VERBOSE", "") not in ("", "0")
        self._children: dict[str, Child] = {}
        self._ending = asyncio.Event()
        self._hurried = False
        self._environment: dict[str, str] = {
            "DJANGO_SETTINGS_MODULE": "portal.site.settings",
            "EVENSHARE_DATA_DIR": str(place.data),
            "EVENSHARE_RUN_DIR": str(place.run),
            "EVENSHARE_LIFELINE": str(place.lifeline),
            "EVENSHARE_COLLECTED": "1",
            "PYTHONUNBUFFERED": "1",
        }

    async def run(self, begun: float) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal)
        work = asyncio.create_task(self._start_and_watch(begun))
        ending = asyncio.create_task(self._ending.wait())
        try:
            await asyncio.wait({work, ending}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            for task in (work, ending):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, StartError):
                    await task
            await self._stop()
        say("stopped")
        return 0

    async def _start_and_watch(self, begun: float) -> None:
        await self._start_services()
        logins = await self._prepare_database()
        applications = self._applications()
        for spec in applications:
            self._keep(spec)
            if spec.name == FIRST_WEB:
                # Started first: the first page should not wait for the workers.
                await self._until(self._page_served, spec.name, START_PATIENCE_S)
        # From here on the watchdog knows every process, so a kill of the supervisor leaves none
        # behind.
        for spec in applications:
            await self._children[spec.name].begun.wait()
        say(f"ready in {time.monotonic() - begun:.1f} s: {self._url}")
        for line in logins:
            say(f"  {line.replace('{url}', self._url.rstrip('/'))}")
        say(f"Ctrl-C stops it; data and logs are in {self._place.data}")
        await self._watch_pulses()

    async def _start_services(self) -> None:
        waits: list[Awaitable[None]] = []
        if "REDIS_URL" not in os.environ:
            valkey = Valkey(self._place)
            self._environment["REDIS_URL"] = valkey.url
            self._keep(Spec("valkey", valkey.command, stage=1, alarm=NEVER))
            waits.append(self._until(valkey.ready, "valkey", START_PATIENCE_S))
        if "DATABASE_URL" not in os.environ:
            waits.append(self._start_postgres())
        if slurm.is_wanted():
            waits.append(self._start_slurm())
        await asyncio.gather(*waits)

    async def _start_postgres(self) -> None:
        postgres = Postgres(self._place)
        if postgres.identity.user is not None:
            say(f"root cannot create a namespace here: the database is in {postgres.identity.home}")
        await asyncio.to_thread(postgres.prepare)
        self._environment["DATABASE_URL"] = postgres.url(APP_ROLE)
        self._environment["OWNER_DATABASE_URL"] = postgres.url(OWNER_ROLE)
        self._keep(
            Spec(
                "postgres",
                postgres.command,
                stage=1,
                # ends the sessions, loses no data
                stop=signal.SIGINT,
                stop_s=20.0,
                popen={**postgres.identity.popen, "cwd": postgres.identity.home},
                alarm=NEVER,
                trouble=BACKEND_KILLED,
            )
        )
        await self._until(postgres.ready, "postgres", START_PATIENCE_S)
        await asyncio.to_thread(postgres.ensure_roles_and_database)

    async def _start_slurm(self) -> None:
        self._keep(slurm.slurm_spec(self._place))
        child = self._children["slurm"]
        await self._until(lambda: bool(slurm.conf_of(child)), "slurm", START_PATIENCE_S)
        self._environment["EVENSHARE_SLURM_CONF"] = slurm.conf_of(child)

    async def _prepare_database(self) -> list[str]:
        child = self._child(Spec("prepare", [sys.executable, "-m", "portal.site.prepare"]))
        if await child.run_once() != 0:
            raise StartError(f"the database could not be prepared: {child.last_line}")
        lines = (line.partition(LOGINS_MARK) for line in child.lines)
        return [text for before, mark, text in lines if mark and not before]

    def _applications(self) -> list[Spec]:
        celery = [sys.executable, "-m", "celery", "-A", "portal.site.celery"]
        worker = ["worker", "--without-gossip", "--without-mingle"]
        processes = {"rounds": self._round_count, "default": 1}
        return [
            self._web_spec(FIRST_WEB),
            *(
                Spec(
                    f"worker-{queue}",
                    [
                        *(*celery, *worker, f"--concurrency={count}"),
                        *("--queues", queue, "--hostname", f"{queue}@%h"),
                    ],
                    # After TERM the running task ends. A round that takes longer is fenced: killing
                    # it loses nothing.
                    stop_s=8.0,
                )
                for queue, count in processes.items()
            ),
            Spec("beat", [*celery, "beat", "--schedule", str(self._place.run / "beat")]),
            *(self._web_spec(f"web-{number}") for number in range(2, self._web.processes + 1)),
        ]

    def _web_spec(self, name: str) -> Spec:
        """Return the spec of a web process; all web processes accept from one socket."""
        number = self._listener.fileno()
        return Spec(
            name,
            # The name distinguishes the process in the process list.
            [sys.executable, "-m", "portal.site.web", str(number), name],
            environment={"DATABASE_POOL_SIZE": str(self._web.connections)},
            popen={"pass_fds": (number,)},
            stop_s=12.0,
        )

    async def _watch_pulses(self) -> None:
        watch = PulseWatch(self._place.run, time.monotonic())
        watched = {name: name if name == BEAT else f"worker-{name}" for name in PATIENCE_S}
        starts = {name: self._children[child].starts for name, child in watched.items()}
        while True:
            await asyncio.sleep(PULSE_CHECK_S)
            for name, child in watched.items():
                if self._children[child].starts != starts[name]:
                    starts[name] = self._children[child].starts
                    watch.starts(name, time.monotonic())
            late = watch.stalled(time.monotonic())
            for name, why, next_after_s in late:
                say(f"{watched[name]} restarts: {why}")
                note_restart(
                    self._place.run, watched[name], why, at=time.time(), next_after_s=next_after_s
                )
            await asyncio.gather(*(self._children[watched[name]].restart() for name, *_ in late))

    async def _until(self, ready: Callable[[], bool], name: str, patience_s: float) -> None:
        child = self._children[name]
        deadline = time.monotonic() + patience_s
        while not await asyncio.to_thread(ready):
            if child.starts > 2 or time.monotonic() > deadline:
                raise StartError(f"{name} does not start: {child.last_line}")
            await asyncio.sleep(0.05)

    def _page_served(self) -> bool:
        """Return whether a web process answers at all, whatever the response."""
        try:
            with socket.create_connection(self._listener.getsockname(), 2.0) as connection:
                connection.settimeout(10.0)
                connection.sendall(b"HEAD / HTTP/1.0\r\nHost: localhost\r\n\r\n")
                return connection.recv(16).startswith(b"HTTP/")
        except OSError:
            return False

    async def _stop(self) -> None:
        """Stop web and beat first, so that no new work arrives; then workers, jobs and services."""
        await self._stop_children("prepare", "web-", "beat")
        await self._stop_children("worker-")
        await self._end_jobs()
        await self._stop_children("valkey", "postgres", "slurm")

    async def _stop_children(self, *names: str) -> None:
        wave = [child.stop() for name, child in self._children.items() if name.startswith(names)]
        await asyncio.gather(*wave)

    async def _end_jobs(self) -> None:
        """Make local jobs checkpoint and end; no process can start a new one."""
        active = self._place.jobs / "active"
        if not active.is_dir() or not any(active.iterdir()):
            return
        hurry = ["--now"] if self._hurried else []
        command = [sys.executable, "-I", "-S", str(SHIM), "--end", str(self._place.jobs), *hurry]
        # Stage 1, so that a second Ctrl-C makes the jobs end faster and does not kill this child.
        await self._child(Spec("jobs", command, stage=1)).run_once()

    def _on_signal(self) -> None:
        if self._ending.is_set():
            say("killing the remaining processes")
            self._hurried = True
            if "jobs" in self._children:
                self._children["jobs"].signal(signal.SIGTERM)
            for child in self._children.values():
                if child.spec.stage == 0:
                    child.kill()
            return
        say("stopping")
        self._ending.set()

    def _keep(self, spec: Spec) -> None:
        self._child(spec).keep()

    def _child(self, spec: Spec) -> Child:
        spec = Spec(**{**vars(spec), "environment": {**self._environment, **spec.environment}})
        child = Child(
            spec, self._place.logs, self._watchdog, say, verbose=self._verbose, note=self._note
        )
        self._children[spec.name] = child
        return child

    def _note(self, name: str, why: str) -> None:
        if not self._ending.is_set():
            note_restart(self._place.run, name, why, at=time.time())

    @property
    def _url(self) -> str:
        return f"http://{HOST}:{self._listener.getsockname()[1]}/"


def chosen_port(environment: Mapping[str, str] = os.environ) -> int:
    text = environment.get("PORT", "8000")
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise StartError(f"PORT must be a number from 1 to 65535, not {text!r}")
    return int(text)


def listen(port: int) -> socket.socket:
    """Return the listening socket, held here so that it survives a crash of web processes."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except OSError as error:
        listener.close()
        hint = f"choose another: PORT={min(port + 1, 65535)} make run"
        raise StartError(f"port {port} cannot be used ({error.strerror}); {hint}") from error
    listener.listen(512)
    return listener


def say(text: str) -> None:
    with contextlib.suppress(OSError):  # Printing fails if the terminal was closed.
        print(f"evenshare: {text}", flush=True)
