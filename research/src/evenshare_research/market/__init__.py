"""Astraea-online's scheduler: utilities, posted prices, own quota before shared GPUs."""
