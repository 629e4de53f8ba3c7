"""The page about the schema is what the migrations make."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import psycopg

DOCS = Path(__file__).parents[2] / "docs"


def test_the_schema_of_a_migrated_database_is_the_documented_one(database_urls):
    spec = importlib.util.spec_from_file_location("schema", DOCS / "schema.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with psycopg.connect(database_urls["admin"]) as connection:
        found = module.describe(connection)
    assert found == module.PAGE.read_text(encoding="utf-8"), "run: make docs"
    assert "row-level security: OFF" in found, "the list of migrations is nobody's"
    assert found.count("row-level security: OFF") == 1
