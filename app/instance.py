"""One running instance a home: a second start raises the first window, and hands it the model it was given."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from PySide6.QtCore import QLockFile, QObject, Signal
from PySide6.QtNetwork import QLocalServer, QLocalSocket

CONNECT_MS = 2000
MAX_MESSAGE = 65_536


class Instance(QObject):
    """Signal raised(path of a model, or ""): another start asked this instance to come to the front."""

    raised = Signal(str)

    def __init__(self, lock_file: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._lock = QLockFile(str(lock_file))
        # No age makes a lock stale: only the death of its process does, which Qt checks by its id.
        self._lock.setStaleLockTime(0)
        self._name = "layerdeck-" + hashlib.sha256(str(lock_file.absolute()).encode()).hexdigest()[:16]
        self._server: QLocalServer | None = None
        self._sockets: list[QLocalSocket] = []

    def acquire(self) -> bool:
        """True when this is the first instance; it then listens."""
        if not self._lock.tryLock(0):
            return False
        QLocalServer.removeServer(self._name)
        self._server = QLocalServer(self)
        self._server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self._server.newConnection.connect(self._on_connection)
        self._server.listen(self._name)
        return True

    def raise_first(self, model: str) -> bool:
        """Asks the first instance to come to the front; False when it does not answer."""
        socket = QLocalSocket()
        socket.connectToServer(self._name)
        if not socket.waitForConnected(CONNECT_MS):
            return False
        socket.write(json.dumps({"model": model}).encode() + b"\n")
        sent = socket.waitForBytesWritten(CONNECT_MS)
        socket.disconnectFromServer()
        return bool(sent)

    def release(self) -> None:
        """Gives the place free."""
        if self._server is not None:
            self._server.close()
        self._lock.unlock()

    def _on_connection(self) -> None:
        assert self._server is not None
        socket = self._server.nextPendingConnection()
        socket.setReadBufferSize(MAX_MESSAGE)
        socket.readyRead.connect(self._on_ready_read)
        self._sockets.append(socket)
        # The line may have come before the signal was connected.
        self._on_ready_read()

    def _on_ready_read(self) -> None:
        for socket in tuple(self._sockets):
            if socket.canReadLine():
                self._sockets.remove(socket)
                self._tell(bytes(socket.readLine().data()))

    def _tell(self, line: bytes) -> None:
        try:
            model = json.loads(line)["model"]
        except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError):
            return
        self.raised.emit(model if isinstance(model, str) else "")
