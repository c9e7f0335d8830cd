"""Options of gandiva_fair; rule numbers are those of `policy`."""

from typing import Annotated, Literal

from msgspec import Meta

from evenshare_core.policies.options import Options
from evenshare_core.units import SECOND_US


class GandivaFairOptions(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    quantum_s: Annotated[
        int,
        Meta(
            ge=1,
            le=86_400,
            description="Length of a turn of jobs that share GPUs, within the pool's shortest"
            " and longest lease; without such bounds, the lease length. Shorter turns are"
            " fairer, but jobs stop and start more often.",
        ),
    ] = 60
    tickets: Annotated[
        Literal["placement", "paper"],
        Meta(
            description="How a tenant's quota is divided into turns of its jobs: by what each"
            " job can get on its nodes, so that tenants receive equal shares (placement), or"
            " by the GPUs of its jobs only (paper)."
        ),
    ] = "placement"
    trading: Annotated[
        bool,
        Meta(
            description="Allow tenants whose jobs gain little from faster GPUs to trade them for"
            " more slower GPUs. At the known speeds, no side has less throughput than with"
            " its own quota."
        ),
    ] = True
    balance_percent: Annotated[
        int,
        Meta(
            ge=0,
            le=1000,
            description="Difference of load, in percent of the average, above which jobs move"
            " from the most to the least loaded node.",
        ),
    ] = 20
    gain_percent: Annotated[
        int,
        Meta(
            ge=0,
            le=1000,
            description="Gain above which a job moves to another GPU type.",
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
