-- name: create
INSERT INTO environments (organization_id, name, description) VALUES (%(organization_id)s, %(name)s, %(description)s)
ON CONFLICT (organization_id, name) DO NOTHING
RETURNING id

-- name: find
SELECT id FROM environments WHERE organization_id = %(organization_id)s AND name = %(name)s

-- name: get
SELECT e.id, e.name, e.description, e.created_at, coalesce(v.number, 0) AS versions, v.number AS latest_number,
  v.id AS latest_version_id, v.created_at AS published_at
FROM environments e LEFT JOIN LATERAL (
  SELECT id, number, created_at FROM environment_versions
  WHERE organization_id = e.organization_id AND environment_id = e.id ORDER BY number DESC LIMIT 1
) v ON true
WHERE e.organization_id = %(organization_id)s AND e.id = %(environment_id)s

-- name: list
SELECT e.id, e.name, e.description, e.created_at, coalesce(v.number, 0) AS versions, v.number AS latest_number,
  v.id AS latest_version_id, v.created_at AS published_at
FROM environments e LEFT JOIN LATERAL (
  SELECT id, number, created_at FROM environment_versions
  WHERE organization_id = e.organization_id AND environment_id = e.id ORDER BY number DESC LIMIT 1
) v ON true
WHERE e.organization_id = %(organization_id)s
  AND (%(before_at)s::timestamptz IS NULL OR (e.created_at, e.id) < (%(before_at)s, %(before_id)s::uuid))
ORDER BY e.created_at DESC, e.id DESC
LIMIT %(limit)s

-- name: lock
SELECT name FROM environments WHERE organization_id = %(organization_id)s AND id = %(environment_id)s FOR UPDATE

-- name: next_number
-- A statement of its own: one that waits for the lock would still see what was there before it waited.
SELECT 1 + coalesce(max(number), 0) AS number FROM environment_versions
WHERE organization_id = %(organization_id)s AND environment_id = %(environment_id)s

-- name: version_by_digest
SELECT id, number FROM environment_versions
WHERE organization_id = %(organization_id)s AND environment_id = %(environment_id)s AND digest = %(digest)s

-- name: publish
INSERT INTO environment_versions (organization_id, environment_id, number, digest, manifest, files, bundle_artifact_id,
  published_by)
VALUES (%(organization_id)s, %(environment_id)s, %(number)s, %(digest)s, %(manifest)s, %(files)s, %(bundle_artifact_id)s,
  %(published_by)s)
RETURNING id

-- name: version
SELECT v.id, v.environment_id, e.name AS environment_name, v.number, v.digest, v.manifest, v.files, v.bundle_artifact_id,
  v.published_by, v.created_at
FROM environment_versions v
JOIN environments e ON e.organization_id = v.organization_id AND e.id = v.environment_id
WHERE v.organization_id = %(organization_id)s AND v.id = %(version_id)s

-- name: versions
SELECT v.id, v.environment_id, e.name AS environment_name, v.number, v.digest, v.manifest, v.bundle_artifact_id,
  v.published_by, v.created_at
FROM environment_versions v
JOIN environments e ON e.organization_id = v.organization_id AND e.id = v.environment_id
WHERE v.organization_id = %(organization_id)s AND v.environment_id = %(environment_id)s
  AND (%(before_at)s::timestamptz IS NULL OR (v.created_at, v.id) < (%(before_at)s, %(before_id)s::uuid))
ORDER BY v.created_at DESC, v.id DESC
LIMIT %(limit)s

-- name: set_secret
INSERT INTO environment_secrets (organization_id, environment_id, name, ciphertext)
VALUES (%(organization_id)s, %(environment_id)s, %(name)s, %(ciphertext)s)
ON CONFLICT (organization_id, environment_id, name) DO UPDATE SET ciphertext = excluded.ciphertext, updated_at = now()

-- name: delete_secret
DELETE FROM environment_secrets
WHERE organization_id = %(organization_id)s AND environment_id = %(environment_id)s AND name = %(name)s

-- name: secret_names
SELECT name, updated_at FROM environment_secrets
WHERE organization_id = %(organization_id)s AND environment_id = %(environment_id)s ORDER BY name

-- name: secrets
SELECT name, ciphertext FROM environment_secrets
WHERE organization_id = %(organization_id)s AND environment_id = %(environment_id)s ORDER BY name

-- name: all_secrets
SELECT environment_id, name, ciphertext FROM environment_secrets
WHERE organization_id = %(organization_id)s ORDER BY environment_id, name
FOR UPDATE
