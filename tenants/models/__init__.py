"""Tables of people, tenants, quotas and budgets, and of the logs that nobody bends."""

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
from tenants.models.transparency import LogEntry, LogKey, LogNode, TransparencyLog

__all__ = [
    "ApiToken",
    "AuditRecord",
    "Budget",
    "DailySpend",
    "IdRange",
    "IdempotentReply",
    "IdleOffer",
    "LogEntry",
    "LogKey",
    "LogNode",
    "LoginAttempt",
    "Membership",
    "PriceLimit",
    "Quota",
    "RateBucket",
    "SharingSetting",
    "Tenant",
    "TransparencyLog",
    "TstzRange",
    "User",
]
