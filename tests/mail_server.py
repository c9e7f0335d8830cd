"""An SMTP server for tests, which keeps the mails it accepts (RFC 5321, one mail per session)."""

from __future__ import annotations

import email.policy
import socketserver
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import EmailMessage
from threading import Thread
from typing import ClassVar


@dataclass
class Mailbox:
    """The accepted mails. Mail to an address in `refused` gets its reply, such as `550 no`."""

    port: int = 0
    mails: list[EmailMessage] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


class _Session(socketserver.StreamRequestHandler):
    mailbox: ClassVar[Mailbox]

    def handle(self) -> None:
        """Serve one session."""
        self._reply("220 tests ESMTP")
        recipients: list[str] = []
        while line := self.rfile.readline():
            word = line[:4].upper().strip()
            if word in (b"EHLO", b"HELO"):
                self._reply("250-tests\r\n250 8BITMIME")
            elif word == b"RCPT":
                address = line.decode().split("<")[1].split(">")[0]
                recipients.append(address)
                self._reply(self.mailbox.refused.get(address, "250 ok"))
            elif word == b"DATA":
                self._reply("354 go on")
                self._keep()
                self._reply("250 kept")
            elif word == b"QUIT":
                self._reply("221 bye")
                return
            else:
                self._reply("250 ok")

    def _keep(self) -> None:
        lines = []
        while (line := self.rfile.readline()) not in (b".\r\n", b""):
            lines.append(line.removeprefix(b".") if line.startswith(b"..") else line)
        mail = email.message_from_bytes(b"".join(lines), policy=email.policy.default)
        assert isinstance(mail, EmailMessage)
        self.mailbox.mails.append(mail)

    def _reply(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


@contextmanager
def mail_server() -> Iterator[Mailbox]:
    """Run a server on a free port of this machine."""
    mailbox = Mailbox()
    session = type("Session", (_Session,), {"mailbox": mailbox})
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), session) as server:
        server.daemon_threads = True
        mailbox.port = server.server_address[1]
        thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield mailbox
        server.shutdown()
        thread.join()
