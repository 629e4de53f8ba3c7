"""The addresses of databases, with another login or another name."""

from __future__ import annotations

from urllib.parse import quote, urlencode

import psycopg
from psycopg.conninfo import conninfo_to_dict

from relaxforge.core.errors import ConfigError

_UNREADABLE = "the database URL cannot be read; write postgresql://USER@HOST:PORT/DATABASE"


def with_parts(url: str, **parts: str) -> str:
    """``url`` as ``postgresql://...`` with some parts (``user``, ``password``, ``dbname``, ``options``) replaced.

    Errors: ``ConfigError`` when it is no address of a PostgreSQL database; the message does not repeat it.
    """
    try:
        known = {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None} | parts
    except psycopg.ProgrammingError:
        raise ConfigError(_UNREADABLE) from None
    login = quote(known.pop("user", ""), safe="")
    if password := known.pop("password", ""):
        login += f":{quote(password, safe='')}"
    name = quote(known.pop("dbname", ""), safe="")
    query = urlencode(sorted(known.items()), quote_via=quote)
    return f"postgresql://{login}{'@' if login else ''}/{name}{'?' if query else ''}{query}"


def address(url: str) -> str:
    """Server and database of ``url`` for people to read, without login. Errors: as ``with_parts``."""
    try:
        known = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        raise ConfigError(_UNREADABLE) from None
    return f"{known.get('host', 'localhost')}:{known.get('port', '5432')}/{known.get('dbname', '')}"
