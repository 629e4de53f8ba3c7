"""Rows of one organization do not exist for another."""

from __future__ import annotations


def test_a_scope_sees_its_own_organization_only(on_loop, app_database, two_organizations):
    async def names(scope):
        async with app_database.scope(scope) as tx:
            return [
                row["name"] for row in await (await tx.connection.execute("SELECT name FROM organizations")).fetchall()
            ]

    assert on_loop(names(two_organizations.a)) == ["Organization a"]
    assert on_loop(names(two_organizations.b)) == ["Organization b"]
