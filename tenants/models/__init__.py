"""Tables of people, tenants, quotas and budgets, and of the append-only logs."""

from tenants.models.people import Invitation, SavedFilter
from tenants.models.quota_requests import QuotaChangeRequest
from tenants.models.tenancy import (
    ApiToken,
    AuditRecord,
    Budget,
    DailySpend,
    IdempotentReply,
    IdleOffer,
    IdRange,
    LoginAttempt,
    Membership,
    PriceLimit,
    Quota,
    RateBucket,
    SharingSetting,
    Tenant,
    TstzRange,
    User,
)
from tenants.models.transparency import LogEntry, LogKey, LogNode, LogScrub, TransparencyLog
