-- name: mighty_roles
SELECT current_user AS login, rolname, rolsuper FROM pg_roles
WHERE (rolsuper OR rolbypassrls OR rolname = 'relaxforge_definer') AND pg_has_role(session_user, oid, 'MEMBER')
ORDER BY rolname <> current_user, rolname

-- name: owned_tables
SELECT current_user AS login, c.relname AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'relaxforge' AND pg_has_role(session_user, c.relowner, 'MEMBER')
ORDER BY c.relname LIMIT 1

-- name: login
SELECT current_user AS login,
  EXISTS (SELECT FROM pg_roles WHERE rolname = %(role)s AND pg_has_role(current_user, oid, 'USAGE')) AS fits,
  EXISTS (
    SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'relaxforge' AND c.relname IN ('users', 'browser_sessions', 'api_tokens')
      AND has_any_column_privilege(c.oid, 'SELECT')
  ) AS reads_people

-- name: has_migrations
SELECT to_regclass('relaxforge.migrations') IS NOT NULL AS present

-- name: migrations
SELECT number, sha256 FROM relaxforge.migrations ORDER BY number

-- name: open_tables
-- Every table but the list of migrations is somebody's. A policy that lets more through than the organization's is as
-- bad as none, so every policy for anybody but the definer has to name the current organization.
WITH ours AS (
  SELECT c.oid, c.relname, c.relrowsecurity, c.relforcerowsecurity, c.relkind FROM pg_class c
  WHERE c.relnamespace = 'relaxforge'::regnamespace AND c.relkind IN ('r', 'p', 'f', 'm', 'v')
    AND c.relname <> 'migrations'
), rules AS (
  SELECT p.polrelid, p.polcmd,
    CASE WHEN EXISTS (SELECT FROM pg_attribute WHERE attrelid = p.polrelid AND attname = 'organization_id') THEN
      pg_get_expr(p.polqual, p.polrelid) = '(organization_id = ( SELECT current_organization() AS current_organization))'
      AND pg_get_expr(p.polqual, p.polrelid) = pg_get_expr(p.polwithcheck, p.polrelid)
    ELSE
      pg_get_expr(p.polqual, p.polrelid) LIKE '%%( SELECT current_organization() AS current_organization)%%'
      AND pg_get_expr(p.polqual, p.polrelid) = pg_get_expr(p.polwithcheck, p.polrelid)
    END AS scoped,
    p.polroles = ARRAY['relaxforge_definer'::regrole::oid] AS definers
  FROM pg_policy p WHERE p.polpermissive
)
SELECT relname AS name, CASE
    WHEN relkind NOT IN ('r', 'p') THEN 'is no table with row-level security'
    WHEN NOT relrowsecurity THEN 'has row-level security switched off'
    WHEN NOT relforcerowsecurity THEN 'does not force row-level security on its owner'
    WHEN NOT EXISTS (SELECT FROM rules WHERE polrelid = oid AND NOT definers) THEN 'has no policy'
    ELSE 'has a policy that lets other organizations through'
  END AS fault
FROM ours
WHERE relkind NOT IN ('r', 'p') OR NOT relrowsecurity OR NOT relforcerowsecurity
  OR NOT EXISTS (SELECT FROM rules WHERE polrelid = oid AND NOT definers)
  OR EXISTS (SELECT FROM rules WHERE polrelid = oid AND NOT definers AND (NOT scoped OR polcmd <> '*'))
ORDER BY relname
