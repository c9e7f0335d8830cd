"""The web server on a socket of the supervisor: `python -m portal.site.web FD [NAME]`.

The socket survives a crashed web process, so requests wait for its successor instead of being
refused. Several processes accept from it; NAME distinguishes them in the process list.
"""

import socket
import sys

import uvicorn

DRAIN_S = 8


def main() -> None:
    listener = socket.socket(fileno=int(sys.argv[1]))
    config = uvicorn.Config(
        "portal.site.asgi:application",
        lifespan="off",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=DRAIN_S,
        log_config=None,
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
