"""From lease events to usage lines, and from usage lines to hourly settlements.

`meter_pool` reads a pool's events by cursor and writes a line for every term that closed;
`settle_pool` posts one balanced transfer per borrower and hour that is over. Both begin by
locking the pool's cursor row, so that two workers never write the same line twice, and both
may be called at any time, any number of times. `log_transfers` puts what was posted into the log
of its book.
"""

from billing.metering.forecasts import count_forecasts
from billing.metering.ledger_log import log_transfers
from billing.metering.meter import Metered, meter_pool
from billing.metering.settle import Settled, settle_pool

__all__ = ["Metered", "Settled", "count_forecasts", "log_transfers", "meter_pool", "settle_pool"]
