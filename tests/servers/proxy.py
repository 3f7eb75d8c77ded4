"""A forward proxy on loopback that leads every name to one server: tunnels by CONNECT, and requests in absolute form."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import ssl


class ForwardProxy:
    """Passes on what comes to the server at `goal`.

    Attributes:
        url: with the scheme.
        heads: the heads of the requests that it got, one for each connection.
    """

    def __init__(self, goal: str, *, refusal: bytes = b"", tls: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(goal)
        self._goal = (parts.hostname or "", parts.port or 0)
        self._refusal = refusal
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._tls = tls
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self._socket.getsockname()[1]}"
        self.heads: list[str] = []
        self._open: list[socket.socket] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_raised: object) -> None:
        for each in (self._socket, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                threading.Thread(target=self._converse, args=(client,), daemon=True).start()

    def _converse(self, client: socket.socket) -> None:
        with suppress(OSError):
            if self._tls is not None:
                client = self._tls.wrap_socket(client, server_side=True)
            self._open.append(client)
            data = b""
            while b"\r\n\r\n" not in data:
                data += client.recv(65536)
            self.heads.append(data.partition(b"\r\n\r\n")[0].decode())
            if self._refusal:
                client.sendall(self._refusal)
                client.close()
                return
            server = socket.create_connection(self._goal)
            self._open.append(server)
            if data.startswith(b"CONNECT "):
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                server.sendall(data)
            threading.Thread(target=_pass_on, args=(server, client), daemon=True).start()
            _pass_on(client, server)


def _pass_on(source: socket.socket, goal: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            goal.sendall(data)
        goal.shutdown(socket.SHUT_WR)
