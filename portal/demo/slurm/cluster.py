"""Start and stop a real Slurm cluster in a folder, without systemd and without root.

    with SlurmCluster(folder) as cluster:
        cluster.run("sbatch", "--nodes=2", "--gres=gpu:4", "job.sh")

MUNGE's daemon, slurmctld and a slurmd per node run in the foreground. Each has a process group that
a watchdog ends when this process is gone. To use Slurm's tools directly, set SLURM_CONF to
`cluster.conf`. All nodes have the address 127.0.0.1; their names do not resolve.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from portal.embedded.folders import try_lock
from portal.embedded.watchdog import Watchdog

from . import config
from .config import HOST, NODES, PARTITION, SLURMD_TIMEOUT_S, Paths, SlurmNode
from .packages import find, how_to_install, missing_packages
from .ports import ReservedPorts
from .processes import kill_processes

START_PATIENCE_S = 60.0
# Longer than KillWait; a job of a disconnected node stays in the queue.
CANCEL_PATIENCE_S = 10.0
# Tools retry while the controller is down; normally they answer within milliseconds.
TOOL_PATIENCE_S = 10.0
# The kernel's limit for the address of a unix socket.
LONGEST_SOCKET = 107
CONTROLLER, MUNGED = "slurmctld", "munged"
SHOWN_LINES = 12


class SlurmError(Exception):
    """The cluster cannot start or does not answer; the text gives the reason."""


class SlurmCluster:
    """A cluster in its own folder.

    Started again in the same folder, it knows its old jobs and the drained nodes. `stop` cancels
    running jobs. `sockets`: as in `Paths`. `extra`: more lines of slurm.conf.
    """

    partition = PARTITION

    def __init__(
        self,
        folder: Path,
        nodes: Sequence[SlurmNode] = NODES,
        *,
        slurmd_timeout_s: int = SLURMD_TIMEOUT_S,
        sockets: Path | None = None,
        extra: Sequence[str] = (),
    ) -> None:
        self._extra = tuple(extra)
        self.nodes = tuple(nodes)
        self._slurmd_timeout_s = slurmd_timeout_s
        self._paths = Paths(folder.absolute(), sockets and sockets.absolute())
        self._lock = -1
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._watchdog: Watchdog | None = None
        self._ports: ReservedPorts | None = None

    @property
    def conf(self) -> Path:
        return self._paths.conf

    @property
    def environment(self) -> dict[str, str]:
        """Return this process's environment for this cluster, without variables of others."""
        kept = {
            name: text
            for name, text in os.environ.items()
            if not name.startswith(("SLURM_", "SBATCH_", "SQUEUE_", "SINFO_", "SCANCEL_"))
        }
        return {**kept, "SLURM_CONF": str(self.conf)}

    def __enter__(self) -> SlurmCluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the cluster and wait until every node has registered; new nodes are then idle.

        Raises:
            SlurmError: a package is missing or a daemon does not start; nothing keeps running.
        """
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Cancel the jobs, end the daemons, and leave no process, also after a partial start.

        Raises:
            SlurmError: a process survived SIGKILL.
        """
        if self._is_running(CONTROLLER):
            # A controller that does not answer cannot cancel: its jobs are killed below.
            with contextlib.suppress(SlurmError):
                self._cancel_jobs()
        watchdog, self._watchdog = self._watchdog, None
        if watchdog is not None:
            # The watchdog ends the daemons when the pipe is closed.
            with watchdog:
                pass
        for name in self._daemons:
            self._kill(name)  # Nothing is left to kill unless the watchdog was killed.
        self._daemons.clear()
        # Without the lock, the processes belong to another run.
        left = kill_processes(self.conf) if self._lock >= 0 else set()
        if self._ports is not None:
            self._ports.close()
            self._ports = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        if left:
            raise SlurmError(f"processes of jobs that cannot be killed: {sorted(left)}")

    def run(self, program: str, *arguments: str, patience_s: float = TOOL_PATIENCE_S) -> str:
        """Run one of Slurm's tools on this cluster and return its output.

        Raises:
            SlurmError: it fails or does not answer in time.
        """
        command = [_path(program), *arguments]
        try:
            done = subprocess.run(
                command,
                env=self.environment,
                cwd=self._paths.folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=patience_s,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SlurmError(f"{program}: {error}") from error
        if done.returncode != 0:
            raise SlurmError(f"{program}: {done.stderr.strip() or f'status {done.returncode}'}")
        return done.stdout

    def node_states(self) -> dict[str, str]:
        """Return sinfo's state by node, such as `idle` or `drained`; `down*` does not respond."""
        lines = self.run("sinfo", "--noheader", "--Node", "--format=%N %T").splitlines()
        return {name: state for name, _, state in (line.strip().partition(" ") for line in lines)}

    def dead_daemons(self) -> list[str]:
        """Return the daemons that ended by themselves or were killed."""
        return [name for name in self._daemons if not self._is_running(name)]

    def how_it_ended(self, name: str) -> str:
        """Return how a daemon of `dead_daemons` ended, with its last line of output."""
        status = self._daemons[name].returncode
        how = signal.Signals(-status).name if status < 0 else f"status {status}"
        return f"{how}; its last words: {(self._last_lines(name) or ['none'])[-1]}"

    def start_daemon(self, name: str) -> None:
        """Start a daemon of `dead_daemons` again, without waiting."""
        if self._is_running(name):
            return
        if name in self._daemons:
            assert self._watchdog is not None
            self._watchdog.forget(self._daemons[name].pid)
        self._launch(name)

    def kill_controller(self) -> None:
        """Kill slurmctld as in a crash: state that it has not written is lost."""
        self._kill(CONTROLLER)

    def start_controller(self) -> None:
        """Start slurmctld after `kill_controller` and wait until it listens."""
        self.start_daemon(CONTROLLER)
        self._wait(self._controller_listens, CONTROLLER)

    def _start(self) -> None:
        missing = missing_packages()
        if missing:
            raise SlurmError(f"Debian packages are missing: {how_to_install(missing)}")
        if self._daemons:
            raise SlurmError(f"the cluster in {self._paths.folder} is already running")
        is_new = not self._paths.state.exists()
        self._check_sockets()
        self._paths.folder.mkdir(parents=True, exist_ok=True)
        self._lock = _hold(self._paths.folder / "lock")
        self._prepare()
        # Processes of a run that was killed together with its watchdog.
        kill_processes(self.conf)
        # The watchdog keeps the lock until the last daemon ends, even if this process is killed.
        self._watchdog = Watchdog([self._lock])
        self._launch(MUNGED)
        self._wait(self._paths.munge_socket.is_socket, MUNGED)
        for name in (CONTROLLER, *(node.name for node in self.nodes)):
            self._launch(name)
        self._wait(lambda: self._is_ready(is_new=is_new), CONTROLLER)

    def _check_sockets(self) -> None:
        steps = (self._paths.step_socket(node.name) for node in self.nodes)
        for path in (self._paths.munge_socket, *steps):
            if len(os.fsencode(path)) > LONGEST_SOCKET:
                raise SlurmError(f"the path of a socket would be too long: {path}")

    def _prepare(self) -> None:
        paths = self._paths
        # Other users may run jobs and tools: they read the configuration and reach the socket.
        for folder in (paths.folder, paths.state, paths.spool, paths.logs, paths.munge):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o755)
        paths.munge_socket.unlink(missing_ok=True)
        if not paths.munge_key.exists():
            with os.fdopen(os.open(paths.munge_key, os.O_WRONLY | os.O_CREAT, 0o400), "wb") as key:
                key.write(secrets.token_bytes(1024))
        for node in self.nodes:
            (paths.spool / node.name).mkdir(exist_ok=True)
        config.make_devices(paths, self.nodes)
        self._ports = ReservedPorts([CONTROLLER, *(node.name for node in self.nodes)])
        conf = config.slurm_conf(
            paths,
            self.nodes,
            user=_user(),
            ports=self._ports.numbers,
            slurmd_timeout_s=self._slurmd_timeout_s,
        )
        paths.conf.write_text("".join([conf, *(f"{line}\n" for line in self._extra)]))
        (paths.folder / "gres.conf").write_text(config.gres_conf(paths, self.nodes))
        (paths.folder / "cgroup.conf").write_text(config.cgroup_conf())

    def _launch(self, name: str) -> None:
        assert self._watchdog is not None
        with self._error_log(name).open("ab") as log:
            process = subprocess.Popen(
                self._command(name),
                env=self.environment,
                cwd=self._paths.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._daemons[name] = process
        # The nodes first: the controller still writes its state, and needs MUNGE for it.
        stage = 1 if name in (CONTROLLER, MUNGED) else 0
        self._watchdog.watch(process.pid, stage, signal.SIGTERM)

    def _command(self, name: str) -> list[str]:
        paths = self._paths
        if name == CONTROLLER:
            return [_path(CONTROLLER), "-D", "-f", str(paths.conf)]
        if name != MUNGED:
            return [_path("slurmd"), "-D", "-f", str(paths.conf), "-N", name]
        return [
            _path(MUNGED),
            "--foreground",
            # The folders above may be writable by a group, which MUNGE considers unsafe.
            "--force",
            f"--key-file={paths.munge_key}",
            f"--socket={paths.munge_socket}",
            f"--pid-file={paths.munge}/pid",
            f"--log-file={paths.logs}/munged.log",
            f"--seed-file={paths.munge}/seed",
        ]

    def _controller_listens(self) -> bool:
        """Return whether slurmctld listens. Slurm's tools would wait a second before they retry."""
        assert self._ports is not None
        with contextlib.suppress(OSError):
            socket.create_connection((HOST, self._ports.numbers[CONTROLLER]), 1.0).close()
            return True
        return False

    def _is_ready(self, *, is_new: bool) -> bool:
        if not self._controller_listens():
            return False
        states = self.node_states()
        registered = [state for state in states.values() if not state.endswith("*")]
        if is_new:
            registered = [state for state in registered if state == "idle"]
        return len(registered) == len(self.nodes)

    def _is_running(self, name: str) -> bool:
        return name in self._daemons and self._daemons[name].poll() is None

    def _wait(self, probe: Callable[[], bool], name: str) -> None:
        """Wait for a daemon; fail if another one ends meanwhile."""
        deadline = time.monotonic() + START_PATIENCE_S
        trouble = ""
        while True:
            try:
                if probe():
                    return
                trouble = "it is not ready"
            except SlurmError as error:
                trouble = str(error)
            dead = self.dead_daemons()
            if dead or time.monotonic() > deadline:
                raise SlurmError(self._diagnosis(dead[0] if dead else name, trouble))
            time.sleep(0.05)

    def _diagnosis(self, name: str, trouble: str) -> str:
        log = self._error_log(name)
        lines = self._last_lines(name)
        return "\n  ".join([f"{name} does not start ({trouble}); the end of {log}:", *lines])

    def _error_log(self, name: str) -> Path:
        return self._paths.logs / f"{name}.err"

    def _last_lines(self, name: str) -> list[str]:
        with contextlib.suppress(OSError):
            text = self._error_log(name).read_text(errors="replace")
            return [line for line in text.splitlines() if line.strip()][-SHOWN_LINES:]
        return []

    def _kill(self, name: str) -> None:
        daemon = self._daemons[name]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(daemon.pid, signal.SIGKILL)
        daemon.wait()

    def _cancel_jobs(self) -> None:
        self.run("scancel", f"--partition={PARTITION}")
        deadline = time.monotonic() + CANCEL_PATIENCE_S
        while self.run("squeue", "--noheader") and time.monotonic() < deadline:
            time.sleep(0.05)


def _hold(path: Path) -> int:
    """Lock a cluster's folder, and wait for the end of a former run.

    Raises:
        SlurmError: it is still running.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + START_PATIENCE_S
    while not try_lock(descriptor):
        if time.monotonic() > deadline:
            os.close(descriptor)
            raise SlurmError(f"the cluster in {path.parent} is still running")
        time.sleep(0.05)
    return descriptor


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError as error:
        raise SlurmError(f"Slurm needs a user with a name, not {os.geteuid()}") from error


def _path(program: str) -> str:
    return find(program) or program
