-- name: write
INSERT INTO audit_log (organization_id, user_id, action, subject, detail, remote)
VALUES (%(organization_id)s, %(user_id)s, %(action)s, %(subject)s, %(detail)s, %(remote)s)

-- name: entries
SELECT a.id, a.created_at, a.user_id, u.email, a.action, a.subject, a.detail, a.remote
FROM audit_log a LEFT JOIN users u ON u.id = a.user_id
WHERE a.organization_id = %(organization_id)s
  AND (%(before_at)s::timestamptz IS NULL OR (a.created_at, a.id) < (%(before_at)s, %(before_id)s::uuid))
ORDER BY a.created_at DESC, a.id DESC
LIMIT %(limit)s
