"""Frozen values that are the input and the output of policies, without Django, a clock or I/O.

Times and durations are integers in microseconds of *pool time* (names end in `_us`). GPU-time is an
integer in micro-GPU-seconds (GPUs x microseconds; names end in `_gpu_us`). Prices and credit are
integers in micro-credits (names end in `_micro`). With integers, every sum is exact and every
replay gives the same bytes.
"""
