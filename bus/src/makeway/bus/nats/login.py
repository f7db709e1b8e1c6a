"""A user of NATS whose password stands in a file, so that neither a URL nor an environment holds it."""

from __future__ import annotations

from pathlib import Path


class Login:
    """A user and the file of their password, which is read at each connection.

    Raises OSError where the file cannot be read at first. Afterwards the last password is kept: what the
    client calls while it connects must not raise, or it would never connect again.
    """

    def __init__(self, user: str, password_file: Path) -> None:
        self.user = user
        self._file = password_file
        self._password = self._read()

    def password(self) -> str:
        """Return what is in the file now, without the end of its line."""
        try:
            self._password = self._read()
        except (OSError, UnicodeDecodeError):
            return self._password
        return self._password

    def _read(self) -> str:
        return self._file.read_text().rstrip("\r\n")
