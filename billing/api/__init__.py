"""The API of money: prices, usage, what jobs cost, what lending earned."""

from billing.api.usage import Charges, PriceHistory, PriceList, UsageList

__all__ = ["Charges", "PriceHistory", "PriceList", "UsageList"]
