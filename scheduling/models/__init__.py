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
from scheduling.models.messages import (
    Channel,
    Delivery,
    Message,
    MessageKind,
    OutboxCursor,
    Subscription,
)
from scheduling.models.own_order import EqualPeople
from scheduling.models.plans import JobPlan
from scheduling.models.profiles import (
    Measurement,
    MeasurementNote,
    Profile,
    RunRecord,
    VirtualSpeeds,
)
from scheduling.models.rounds import Round, RoundBlob, RoundScrub, RoundState
from scheduling.models.sessions import SessionCode
from scheduling.models.simulations import Simulation
from scheduling.models.sweeps import JobDependency, Sweep
from scheduling.models.verifications import Verification
