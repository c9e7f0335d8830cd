"""Holds one lease's process; the `local` executor starts it, and it outlives its starter.

    python -I -S shim/ FOLDER          run the program of FOLDER/spec.json, at most once
    python -I -S shim/ --end ROOT      end every shim below ROOT, and wait; `--now`: no grace

It is a separate program (only the standard library, no Django), small and quick to start. It has
its own session, so that a killed worker takes no job with it. It ends the job on request. It also
ends the job when the lease's limit and the outage grace have passed (the dead man's switch). The
same happens when the supervisor's lifeline is released. Files in FOLDER:

- `spec.json` (by the executor): argv, env, cwd, signal, grace_s, log_bytes, tools_path,
  usage_every_s, nice, lifeline, and `until`, the dead man's limit in wall seconds
- `until` (by the executor, with each renewal that moves the limit): the new limit
- `stop` (by the executor): a request to stop; it contains {"grace_s"}
- `shim.json`: the process that claimed the lease; once its program runs, also
  {"child", "started_us"}
- `out.log`, `out.<offset>.log`: the program's output; see `Log`
- `usage.<rank>.json`: the program's usage, for each node of a gang; see `usage`
- `exit.json`: how it ended; written once, durably, by a rename

Signals: SIGTERM ends the job with its grace (or makes the shim read `stop`), SIGQUIT at once.
"""
