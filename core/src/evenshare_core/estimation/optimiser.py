"""The scipy functions that learning curves need; no other module of the package needs scipy."""

try:
    from scipy.optimize import least_squares
    from scipy.special import log_ndtr
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "learning curves need scipy: pip install 'evenshare-core[estimation]'"
    ) from missing

__all__ = ["least_squares", "log_ndtr"]
