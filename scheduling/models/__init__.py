"""Tables of the scheduling engine."""

from scheduling.models.answers import JobAnswer
from scheduling.models.archives import RoundArchive, RoundArchiving
from scheduling.models.arrivals import Arrival
from scheduling.models.bundles import PseudonymKey, RoundBundle, RoundSealing
from scheduling.models.cluster import GpuType, Node, Pool, PoolClock, PoolFence, PriceSetting
from scheduling.models.evaluations import MetricHistory, StopForecast, criterion_of
from scheduling.models.events import Intent, LeaseEvent
from scheduling.models.executors import ExecutorHealth
from scheduling.models.forecasts import PriceForecast, StartEstimate, StartForecast
from scheduling.models.idle import IdleDay, IdleReading
from scheduling.models.jobs import Job, TraceFeed, VirtualWork
from scheduling.models.leases import IterationReading, Lease, LeaseSlot, LeaseTerm
from scheduling.models.maintenance import MaintenanceWindow, RoundFailure
from scheduling.models.plans import JobPlan
from scheduling.models.profiles import (
    Measurement,
    MeasurementNote,
    Profile,
    RunRecord,
    VirtualSpeeds,
)
from scheduling.models.rounds import Round, RoundBlob, RoundScrub, RoundState
from scheduling.models.simulations import Simulation
from scheduling.models.verifications import Verification

__all__ = [
    "Arrival",
    "ExecutorHealth",
    "GpuType",
    "IdleDay",
    "IdleReading",
    "Intent",
    "IterationReading",
    "Job",
    "JobAnswer",
    "JobPlan",
    "Lease",
    "LeaseEvent",
    "LeaseSlot",
    "LeaseTerm",
    "MaintenanceWindow",
    "Measurement",
    "MeasurementNote",
    "MetricHistory",
    "Node",
    "Pool",
    "PoolClock",
    "PoolFence",
    "PriceForecast",
    "PriceSetting",
    "Profile",
    "PseudonymKey",
    "Round",
    "RoundArchive",
    "RoundArchiving",
    "RoundBlob",
    "RoundBundle",
    "RoundFailure",
    "RoundScrub",
    "RoundSealing",
    "RoundState",
    "RunRecord",
    "Simulation",
    "StartEstimate",
    "StartForecast",
    "StopForecast",
    "TraceFeed",
    "Verification",
    "VirtualSpeeds",
    "VirtualWork",
    "criterion_of",
]
