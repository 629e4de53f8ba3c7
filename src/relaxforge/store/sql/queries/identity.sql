-- name: person_by_email
SELECT * FROM person_by_email(%(email)s)

-- name: organizations_of
SELECT * FROM organizations_of(%(user_id)s)

-- name: browser_session
SELECT * FROM browser_session(%(token_hash)s, %(idle)s, %(longest)s)

-- name: api_token
SELECT * FROM api_token(%(token_hash)s)

-- name: open_session
INSERT INTO browser_sessions (token_hash, user_id, organization_id, csrf_token, expires_at)
VALUES (%(token_hash)s, %(user_id)s, %(organization_id)s, %(csrf_token)s, now() + %(idle)s)

-- name: end_session
SELECT end_browser_session(%(token_hash)s)

-- name: change_own_password
SELECT change_own_password(%(password_hash)s) AS changed

-- name: organization
SELECT id, name, created_at, most_running_jobs FROM organizations WHERE id = %(organization_id)s

-- name: change_organization
UPDATE organizations SET name = coalesce(%(name)s, name), most_running_jobs = coalesce(%(most_running_jobs)s, most_running_jobs)
WHERE id = %(organization_id)s
RETURNING id, name, created_at, most_running_jobs

-- name: members
SELECT u.id, u.email, u.name, m.role, m.created_at, u.disabled_at IS NOT NULL AS disabled
FROM memberships m JOIN users u ON u.id = m.user_id
WHERE m.organization_id = %(organization_id)s
  AND (%(before_at)s::timestamptz IS NULL OR (m.created_at, u.id) < (%(before_at)s, %(before_id)s::uuid))
ORDER BY m.created_at DESC, u.id DESC
LIMIT %(limit)s

-- name: find_or_create_person
SELECT * FROM find_or_create_person(%(email)s, %(name)s, %(password_hash)s, true)

-- name: join
INSERT INTO memberships (organization_id, user_id, role) VALUES (%(organization_id)s, %(user_id)s, %(role)s)
ON CONFLICT (organization_id, user_id) DO NOTHING

-- name: lock_owners
SELECT user_id FROM memberships WHERE organization_id = %(organization_id)s AND role = 'owner'
ORDER BY user_id FOR UPDATE

-- name: change_role
UPDATE memberships SET role = %(role)s WHERE organization_id = %(organization_id)s AND user_id = %(user_id)s

-- name: leave
DELETE FROM memberships WHERE organization_id = %(organization_id)s AND user_id = %(user_id)s

-- name: create_token
INSERT INTO api_tokens (organization_id, user_id, token_hash, name, scopes, expires_at)
VALUES (%(organization_id)s, %(user_id)s, %(token_hash)s, %(name)s, %(scopes)s, %(expires_at)s)
RETURNING id, name, scopes, created_at, expires_at, revoked_at, last_used_at

-- name: tokens
SELECT t.id, t.name, t.scopes, t.created_at, t.expires_at, t.revoked_at, t.last_used_at, t.user_id, u.email
FROM api_tokens t JOIN users u ON u.id = t.user_id
WHERE t.organization_id = %(organization_id)s
  AND (%(before_at)s::timestamptz IS NULL OR (t.created_at, t.id) < (%(before_at)s, %(before_id)s::uuid))
ORDER BY t.created_at DESC, t.id DESC
LIMIT %(limit)s

-- name: revoke_token
UPDATE api_tokens SET revoked_at = coalesce(revoked_at, now())
WHERE organization_id = %(organization_id)s AND id = %(token_id)s
