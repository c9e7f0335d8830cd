"""Metering: from lease events to usage lines, and from usage lines to hourly settlements.

`meter_pool` reads a pool's events by cursor and writes a line for every closed term. `settle_pool`
posts one balanced transfer per borrower and past hour. Both lock the pool's cursor row first, so
that two workers never write the same line. They can be called any number of times. `log_transfers`
writes posted transfers to the log of their book.
"""

from billing.metering.forecasts import count_forecasts
from billing.metering.ledger_log import log_transfers
from billing.metering.meter import Metered, meter_pool
from billing.metering.settle import Settled, settle_pool

__all__ = ["Metered", "Settled", "count_forecasts", "log_transfers", "meter_pool", "settle_pool"]
