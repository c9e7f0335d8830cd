"""What a pool says of the Slurm cluster that runs its jobs: `Pool.executor_options`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from scheduling.engine.executors.base import ExecutorError

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}$")]
OptionalName = Annotated[str, Meta(pattern=r"^([A-Za-z0-9][A-Za-z0-9_.@-]{0,62})?$")]
# What no tool takes for an option, or for a number.
UserName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_.@-]{0,62}$")]
Slug = Annotated[str, Meta(pattern=r"^(\*|[A-Za-z0-9_-]{1,63})$")]
Word = Annotated[str, Meta(pattern=r"^[^\x00\n]+$", max_length=400)]
# Stands for the user in `submit_as`, and for all other tenants in `users`.
USER, OTHERS = "{user}", "*"
AbsolutePath = Annotated[str, Meta(pattern=r"^(/[^\x00\n]*)?$", max_length=400)]

# The longest path of a unix socket has 107 bytes. TCP only to this host: a token is not encrypted.
RestdUrl = Annotated[
    str,
    Meta(
        pattern=r"^(unix:/[!-~]{1,106}|http://(127\.0\.0\.1|localhost|\[::1\]):[1-9][0-9]{0,4}/?)$"
    ),
]


class RestdOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A slurmrestd that is asked instead of the tools, as far as it can be (`restd`).

    `url`: `unix:/PATH` of its socket, or `http://127.0.0.1:PORT`. `token_file`: a file with a JSON
    web token for the portal's user; without it slurmrestd must run as that user, and listen on a
    unix socket. `version`: of its interface. `only_submits`: it takes jobs, and the tools do the
    rest, which they do quicker.
    """

    url: RestdUrl
    token_file: AbsolutePath = ""
    version: Literal["v0.0.38"] = "v0.0.38"
    only_submits: bool = False

    def __post_init__(self) -> None:
        """Refuse TCP without a token, which slurmrestd would refuse at each call, and no ports."""
        if not self.token_file and not self.url.startswith("unix:"):
            raise ValueError("`token_file` is needed with http; without a token use `unix:/PATH`")
        port = self.url.rstrip("/").rpartition(":")[2]
        if port.isdecimal() and int(port) > 65535:
            raise ValueError(f"there is no port {port}")


class SlurmOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the cluster is, and how jobs are asked for.

    `conf`: path of slurm.conf; empty: the tools' own. `partition`: the one that Evenshare has to
    itself. `account`, `qos`, `reservation`: passed on with each job where given. `accounts`: of
    tenants, by their slug, that have an account of their own. `users`: the Unix users of tenants'
    jobs, by slug, `*` for all others; empty: all jobs run as the portal's user. `submit_as`: what
    runs sbatch as another user, `{user}` for its name. `cpus_per_gpu`
    and `memory_mib_per_gpu`: a job's share of its nodes beside GPUs; 0: the partition's default.
    `python`: Python 3.10 or later at this path on each node; empty: the path of the portal's.
    `path`: the PATH of jobs. `gres_types`: what gres.conf calls a GPU type, where that is not its
    name here; empty: GPUs have no type there. `limit_minutes`: a job's time limit, set once; 0:
    a little more than its lease, moved with each renewal, for which the portal's user must be an
    operator of Slurm. `restd`: a slurmrestd that is asked instead of the tools.
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
        """Refuse what each field allows and the whole does not."""
        if "root" in self.users.values():
            raise ValueError("jobs never run as root - at `$.users`")
        if USER not in self.submit_as:
            raise ValueError(f"one of the words must be {USER} - at `$.submit_as`")
        if self.users and self.restd is not None:
            raise ValueError(
                "slurmrestd takes jobs for one user alone: leave out `users` or `restd` - at"
                " `$.restd`"
            )

    def gres(self, gpu_type: str, gpus: int) -> str:
        """What sbatch is asked for on each node, as `gpu:a100:4`."""
        name = self.gres_types.get(gpu_type, gpu_type)
        return f"gpu:{name}:{gpus}" if name else f"gpu:{gpus}"

    def account_of(self, tenant: str) -> str:
        """Return the Slurm account of a tenant's jobs; empty: that of the portal's user."""
        return self.accounts.get(tenant, self.account)

    def user_of(self, tenant: str) -> str:
        """Return the Unix user of a tenant's jobs; empty: the portal's, or where others have
        users, none at all."""
        return self.users.get(tenant) or self.users.get(OTHERS, "")

    def prefix(self, user: str) -> list[str]:
        """What a command begins with that runs as a Unix user; empty: as the portal's."""
        return [user if word == USER else word for word in self.submit_as] if user else []

    @property
    def interpreter(self) -> str:
        """The Python of nodes."""
        return self.python or sys.executable

    @property
    def search_path(self) -> str:
        """The PATH of jobs: `python` is the interpreter of the nodes."""
        own = str(Path(self.interpreter).parent)
        return self.path or f"{own}:/usr/local/bin:/usr/bin:/bin"


def read_options(values: Mapping[str, Any], pool: str) -> SlurmOptions:
    """Return a pool's options.

    Raises:
        ExecutorError: they are not such; says which field and why.
    """
    try:
        return msgspec.convert(values, SlurmOptions)
    except msgspec.ValidationError as error:
        raise ExecutorError(
            f"executor_options of the pool {pool} are wrong: {error}; see docs/slurm.md"
        ) from error
