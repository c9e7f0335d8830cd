"""Options of gandiva_fair; the numbers of rules are those of `policy`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from evenshare_core.policies.options import Options
from evenshare_core.units import SECOND_US


class GandivaFairOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of gandiva_fair."""

    quantum_s: Annotated[
        int,
        Meta(
            ge=1,
            le=86_400,
            description="How long a job that shares GPUs by turns has them before the next turn is"
            " decided, as far as the pool's least and longest lease allow; a pool without such"
            " bounds has its lease length. Shorter: turns are fairer, and jobs stop and start more"
            " often.",
        ),
    ] = 60
    tickets: Annotated[
        Literal["placement", "paper"],
        Meta(
            description="How a tenant's quota becomes its jobs' turns: by what each job can get"
            " where it is placed, so that tenants come out even (placement), or divided by the GPUs"
            " of its jobs, wherever they are (paper)."
        ),
    ] = "placement"
    trading: Annotated[
        bool,
        Meta(
            description="Let tenants whose jobs gain little from faster GPUs give theirs to those"
            " whose jobs gain much, for more of the slower ones. Neither has less throughput than"
            " by its own quota, at the speeds that are known."
        ),
    ] = True
    balance_percent: Annotated[
        int,
        Meta(
            ge=0,
            le=1000,
            description="From which difference of load on jobs move from the most to the least"
            " loaded node, in percent of the average load.",
        ),
    ] = 20
    gain_percent: Annotated[
        int,
        Meta(
            ge=0,
            le=1000,
            description="From which gain on a job moves to another GPU type.",
        ),
    ] = 10
    moves_per_quantum: Annotated[
        int,
        Meta(
            ge=0,
            le=1000,
            description="How many jobs a quantum may move, for balance and between GPU types.",
        ),
    ] = 16

    @property
    def quantum_us(self) -> int:
        return self.quantum_s * SECOND_US
