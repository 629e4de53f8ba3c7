"""Writes docs/schema.md: the schema as a database has it after every migration. ``make docs`` runs it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import psycopg

from relaxforge.store.admin import install
from relaxforge.store.embedded import EmbeddedPostgres

PAGE = Path(__file__).with_name("schema.md")
HEAD = """# The schema

Made by `make docs` from a database with every migration of `src/relaxforge/store/sql/migrations`. Row-level security
and its policies are what keeps organizations apart; see `src/relaxforge/store/guard.py`.
"""
TABLES = """SELECT oid, relname, relrowsecurity AND relforcerowsecurity FROM pg_class
WHERE relnamespace = 'relaxforge'::regnamespace AND relkind IN ('r', 'p', 'v', 'm') ORDER BY relname"""
PARTS = {
    "columns": """SELECT format('%s %s%s%s', a.attname, format_type(a.atttypid, a.atttypmod),
        CASE WHEN a.attnotnull THEN ' not null' ELSE '' END, ' default ' || pg_get_expr(d.adbin, d.adrelid))
      FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
      WHERE a.attrelid = %(table)s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum""",
    "constraints": """SELECT conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint
      WHERE conrelid = %(table)s AND contype <> 'n' ORDER BY conname""",
    "indexes": """SELECT regexp_replace(pg_get_indexdef(indexrelid), '^CREATE (.*) ON \\S+ USING', '\\1 USING')
      FROM pg_index WHERE indrelid = %(table)s AND NOT indisprimary ORDER BY 1""",
    "triggers": """SELECT regexp_replace(pg_get_triggerdef(oid), '^CREATE ', '') FROM pg_trigger
      WHERE tgrelid = %(table)s AND NOT tgisinternal ORDER BY tgname""",
    "policies": """SELECT format('%s for %s to %s using %s check %s', polname, polcmd,
        (SELECT string_agg(r.rolname, ', ' ORDER BY r.rolname) FROM pg_roles r WHERE r.oid = ANY (polroles)),
        regexp_replace(pg_get_expr(polqual, polrelid), '[[:space:]]+', ' ', 'g'),
        regexp_replace(pg_get_expr(polwithcheck, polrelid), '[[:space:]]+', ' ', 'g'))
      FROM pg_policy WHERE polrelid = %(table)s ORDER BY polname""",
    "privileges": """SELECT format('%s: %s', role, string_agg(what, ', ' ORDER BY what)) FROM (
        SELECT pg_get_userbyid(acl.grantee) AS role, acl.privilege_type AS what
        FROM pg_class c, aclexplode(c.relacl) acl WHERE c.oid = %(table)s AND acl.grantee <> c.relowner
        UNION ALL
        SELECT pg_get_userbyid(acl.grantee),
          format('%s (%s)', acl.privilege_type, string_agg(a.attname, ', ' ORDER BY a.attnum))
        FROM pg_attribute a, aclexplode(a.attacl) acl WHERE a.attrelid = %(table)s GROUP BY 1, acl.privilege_type
      ) granted GROUP BY role ORDER BY role""",
}
FUNCTIONS = """SELECT p.oid::regprocedure::text,
    format('%s%s; %s; executed by %s; body %s', CASE WHEN p.prosecdef THEN 'definer ' ELSE '' END,
      pg_get_userbyid(p.proowner), coalesce(array_to_string(p.proconfig, ', '), 'no settings'),
      coalesce((
        SELECT string_agg(CASE acl.grantee WHEN 0 THEN 'everybody' ELSE pg_get_userbyid(acl.grantee) END, ', '
          ORDER BY pg_get_userbyid(acl.grantee))
        FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) acl WHERE acl.grantee <> p.proowner
      ), 'nobody'),
      left(md5(p.prosrc), 8))
  FROM pg_proc p WHERE p.pronamespace = 'relaxforge'::regnamespace ORDER BY 1"""


def describe(connection: psycopg.Connection) -> str:
    """The page for one database. The connection's search_path is ``relaxforge``."""
    sections = [HEAD]
    for table, name, secured in connection.execute(TABLES).fetchall():
        lines = [f"row-level security: {'forced' if secured else 'OFF'}"]
        for part, query in PARTS.items():
            rows = [f"  {line}" for (line,) in connection.execute(query.replace("%s", "%%s"), {"table": table})]
            lines += [part, *rows] if rows else []
        sections.append("\n".join([f"## {name}", "", "```", *lines, "```", ""]))
    functions = [f"{name}\n  {facts}" for name, facts in connection.execute(FUNCTIONS)]
    return "\n".join([*sections, "\n".join(["## Functions", "", "```", *functions, "```", ""])])


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="relaxforge-docs-") as folder:
        Path(folder).chmod(0o711)
        with EmbeddedPostgres(Path(folder), {"fsync": "off"}) as server:
            install(server.admin_url)
            with psycopg.connect(server.admin_url, options="-csearch_path=relaxforge") as connection:
                PAGE.write_text(describe(connection), encoding="utf-8")


if __name__ == "__main__":
    main()
