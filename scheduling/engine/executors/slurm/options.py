"""A pool's options for its Slurm cluster: `Pool.executor_options`."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from scheduling.engine.executors.base import ExecutorError
from scheduling.selectors import stored_texts as texts

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}$")]
OptionalName = Annotated[str, Meta(pattern=r"^([A-Za-z0-9][A-Za-z0-9_.@-]{0,62})?$")]
# Names that no tool can confuse with an option or a number.
UserName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_.@-]{0,62}$")]
Slug = Annotated[str, Meta(pattern=r"^(\*|[A-Za-z0-9_-]{1,63})$")]
Word = Annotated[str, Meta(pattern=r"^[^\x00\n]+$", max_length=400)]
# The placeholder for the user in `submit_as`. In `users`, it means all other tenants.
USER, OTHERS = "{user}", "*"
AbsolutePath = Annotated[str, Meta(pattern=r"^(/[^\x00\n]*)?$", max_length=400)]

# A unix socket's path has at most 107 bytes. TCP must be local, as tokens are not encrypted.
RestdUrl = Annotated[
    str,
    Meta(
        pattern=r"^(unix:/[!-~]{1,106}|http://(127\.0\.0\.1|localhost|\[::1\]):[1-9][0-9]{0,4}/?)$"
    ),
]


class RestdOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A slurmrestd that is used instead of the tools as far as possible (`restd`).

    `url`: `unix:/PATH` of its socket, or `http://127.0.0.1:PORT`. `token_file`: a file with a JSON
    web token for the portal's user. Without it slurmrestd must run as that user, and listen on a
    unix socket. `version`: the version of its interface. `only_submits`: it only submits jobs; the
    tools do the rest, because they are faster.
    """

    url: RestdUrl
    token_file: AbsolutePath = ""
    version: Literal["v0.0.38"] = "v0.0.38"
    only_submits: bool = False

    def __post_init__(self) -> None:
        """Refuse TCP without a token, which slurmrestd would refuse, and invalid ports."""
        if not self.token_file and not self.url.startswith("unix:"):
            raise ValueError(
                "`token_file` is needed with http; or, without a token, use `unix:/PATH`"
            )
        port = self.url.rstrip("/").rpartition(":")[2]
        if port.isdecimal() and int(port) > 65535:
            raise ValueError(f"there is no port {port}")


class SlurmOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The location of the cluster, and the parameters of jobs.

    `conf`: path of slurm.conf; empty for the tools' default. `partition`: a partition that only
    Evenshare uses. `account`, `qos`, `reservation`: passed on with each job if given. `accounts`:
    the accounts of tenants that have their own, by slug. `users`: the Unix users of tenants' jobs,
    by slug, `*` for all others; if empty, all jobs run as the portal's user. `submit_as`: the
    command that runs sbatch as another user, with `{user}` for its name. `cpus_per_gpu` and
    `memory_mib_per_gpu`: a job's CPUs and memory for each GPU; 0 for the partition's default.
    `python`: the path of Python 3.10 or later on each node; empty for the portal's path. `path`:
    the PATH of jobs. `gres_types`: the names of GPU types in gres.conf, if they differ from the
    portal's; empty if GPUs have no type there. `limit_minutes`: a job's time limit, set once. If it
    is 0, the limit is a little more than the lease, and is moved with each renewal. The portal's
    user must then be an operator of Slurm. `restd`: a slurmrestd that is used instead of the tools.
    """

    conf: AbsolutePath = ""
    partition: Name
    account: OptionalName = ""
    accounts: dict[str, Name] = {}
    users: dict[Slug, UserName] = {}
    submit_as: tuple[Word, ...] = ("sudo", "-n", "-u", USER, "--")
    qos: OptionalName = ""
    reservation: OptionalName = ""
    cpus_per_gpu: Annotated[int, Meta(ge=0, le=1024)] = 0
    memory_mib_per_gpu: Annotated[int, Meta(ge=0, le=2**30)] = 0
    gres_types: dict[str, OptionalName] = {}
    limit_minutes: Annotated[int, Meta(ge=0, le=527040)] = 0
    python: AbsolutePath = ""
    path: Annotated[str, Meta(pattern=r"^[^\x00\n]*$", max_length=4000)] = ""
    restd: RestdOptions | None = None

    def __post_init__(self) -> None:
        """Refuse combinations of valid fields that are invalid together."""
        if "root" in self.users.values():
            raise ValueError("jobs never run as root - at `$.users`")
        if USER not in self.submit_as:
            raise ValueError(f"one of the words must be {USER} - at `$.submit_as`")
        if self.users and self.restd is not None:
            raise ValueError(
                "slurmrestd submits jobs for one user only: omit `users` or `restd` - at `$.restd`"
            )

    def gres(self, gpu_type: str, gpus: int) -> str:
        """Return sbatch's request for each node, like `gpu:a100:4`."""
        name = self.gres_types.get(gpu_type, gpu_type)
        return f"gpu:{name}:{gpus}" if name else f"gpu:{gpus}"

    def account_of(self, tenant: str) -> str:
        """Return the Slurm account of a tenant's jobs, or "" for that of the portal's user."""
        return self.accounts.get(tenant, self.account)

    def user_of(self, tenant: str) -> str:
        """Return the Unix user of a tenant's jobs, or "".

        If `users` is empty, "" means the portal's user; otherwise the tenant has no user.
        """
        return self.users.get(tenant) or self.users.get(OTHERS, "")

    def prefix(self, user: str) -> list[str]:
        """Return the words that make a command run as a Unix user; empty for the portal's user."""
        return [user if word == USER else word for word in self.submit_as] if user else []

    @property
    def interpreter(self) -> str:
        """The path of Python on the nodes."""
        return self.python or sys.executable

    @property
    def search_path(self) -> str:
        """The PATH of jobs: `python` is the interpreter of the nodes."""
        own = str(Path(self.interpreter).parent)
        return self.path or f"{own}:/usr/local/bin:/usr/bin:/bin"


def read_options(values: Mapping[str, Any], pool: str) -> SlurmOptions:
    """Return a pool's options.

    Raises:
        ExecutorError: they are invalid; the message names the field and the reason.
    """
    try:
        return msgspec.convert(values, SlurmOptions)
    except msgspec.ValidationError as error:
        text = texts.WRONG_OPTIONS.format(pool=pool, error=error, document="docs/slurm.md")
        raise ExecutorError(text) from error
