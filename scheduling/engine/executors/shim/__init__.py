"""Holds one lease's process: started by the `local` executor, and outlives its starter.

    python -I -S shim/ FOLDER          run what FOLDER/spec.json says, once for ever
    python -I -S shim/ --end ROOT      end every shim below ROOT, and wait; `--now`: no grace

A program of its own (only the standard library, no Django): small, quick to start, in its own
session, so that a killed worker takes no job with it. It ends the job by itself when it is
asked to, when the lease's last instant and the outage grace have passed (the dead man's
switch), and when nobody holds the supervisor's lifeline any more. Files in FOLDER:

- `spec.json` (by the executor): argv, env, cwd, signal, grace_s, log_bytes, tools_path,
  usage_every_s, nice, lifeline, and `until`, the dead man's limit in wall seconds
- `until` (by the executor, once that was moved, with each renewal): the same
- `stop` (by the executor): its presence asks to stop; {"grace_s"}
- `shim.json`: who claimed the lease; once its program runs, {"child", "started_us"} too
- `out.log`, `out.<offset>.log`: what the program said; see `Log`
- `usage.<rank>.json`: what the program used, of each node of a gang; see `usage`
- `exit.json`: how it ended; written once, durably, by a rename

Signals: SIGTERM ends the job with its grace (or has `stop` read), SIGQUIT at once.
"""
