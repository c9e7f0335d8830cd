"""The demo: a module per pool, with traces, speeds and people."""
