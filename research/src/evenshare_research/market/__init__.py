"""Astraea-online's scheduler: jobs with utilities, posted prices, own quota first, then shared
GPUs.
"""
