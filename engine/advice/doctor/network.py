"""The one row that uses the network, and only for somebody who wants to download: which stage of a connection fails."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from engine.advice.doctor.check import Fix, Outcome, passed, row, unknown, warned, without_object
from engine.advice.doctor.context import Context

TIMEOUT_S = 10.0
"""Of each stage, and of what they take together."""
PORT = 443
FROM_DISK = Fix("", "bring the file by other means and open it from the disk: models need no network to load", "")
MIRROR = Fix(
    "export HF_ENDPOINT=https://MIRROR", "downloads come from that host, of programs that this shell starts", "unset HF_ENDPOINT"
)


@row("D-NET-1", "Network", "Download of models", quick=False)
def download(context: Context) -> Outcome:
    """Name, connection and encryption in turn, each with its time; nothing is asked for and nothing is sent."""
    if not context.host:
        return without_object("Nobody wants to download; models load without any network.")
    host, proxy = context.host, context.env.get("https_proxy") or context.env.get("HTTPS_PROXY") or ""
    through, port = (urlsplit(proxy).hostname or "", urlsplit(proxy).port or 3128) if proxy else (host, PORT)
    way = f" through the proxy {through}" if proxy else ""
    if not through:
        return unknown("The address of the proxy cannot be read.", "https_proxy")
    deadline = time.monotonic() + TIMEOUT_S
    try:
        addresses = socket.getaddrinfo(through, port, type=socket.SOCK_STREAM)
    except OSError as error:
        fix = Fix(f"getent hosts {through}", "asks the system for the same name; changes nothing", "")
        why = f"The name {through} was not found ({error.strerror or error}): this computer is offline, or its name server is."
        return warned(f"{host}: no address", why, fix, MIRROR, FROM_DISK)
    try:
        connection = _connected(addresses, deadline)
    except OSError as error:
        why = f"The name was found, but {through} did not answer ({error.strerror or 'timed out'})."
        setting = Fix(
            "export https_proxy=http://HOST:PORT", "sends requests of programs of this shell through a proxy", "unset https_proxy"
        )
        return warned(f"{host}: no connection{way}", why, setting, MIRROR, FROM_DISK)
    with connection:
        if proxy:
            return passed(f"the proxy {through} answers", "What lies behind it was not tried.")
        try:
            connection.settimeout(max(0.1, deadline - time.monotonic()))
            with ssl.create_default_context().wrap_socket(connection, server_hostname=host) as secure:
                return passed(f"{host}: {secure.version()}, certificate valid")
        except ssl.SSLCertVerificationError as error:
            why = f"The certificate was refused ({error.verify_message}): a filter in between, or this computer's clock is wrong."
            return warned(f"{host}: no trust", why, FROM_DISK, evidence=str(error))
        except OSError as error:
            why = (
                f"Name and connection are well, encryption failed ({error.strerror or 'timed out'}): a filter may be in between."
            )
            return warned(f"{host}: no encryption", why, MIRROR, FROM_DISK, evidence=str(error))


Addresses = Sequence[tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]]


def _connected(addresses: Addresses, deadline: float) -> socket.socket:
    """A connection to the first address that answers. Raises: OSError."""
    last: OSError = TimeoutError("timed out")
    for family, kind, protocol, _, address in addresses:
        left = deadline - time.monotonic()
        if left <= 0:
            break
        made = socket.socket(family, kind, protocol)
        try:
            made.settimeout(left)
            made.connect(address)
        except OSError as error:
            made.close()
            last = error
        else:
            return made
    raise last
