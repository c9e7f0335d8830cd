"""The API of money: prices, usage, what jobs cost, what lending earned."""

from billing.api.usage import Charges, PriceForecasts, PriceHistory, PriceList, UsageList

__all__ = ["Charges", "PriceForecasts", "PriceHistory", "PriceList", "UsageList"]
