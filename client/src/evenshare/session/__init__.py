"""The server of an interactive job: `python -m evenshare.session`.

It serves a shell or a notebook on a port of its node. Requests need the lease's secret. A file
reports the port and the idle time. Only notebooks need another package: Jupyter.
"""
