-- name: put
INSERT INTO artifacts (organization_id, id, name, media_type, sha256, size_bytes, body, uri)
VALUES (%(organization_id)s, %(artifact_id)s, %(name)s, %(media_type)s, %(sha256)s, %(size_bytes)s, %(body)b, %(uri)s)

-- name: head
SELECT id, name, media_type, sha256, size_bytes, created_at FROM artifacts
WHERE organization_id = %(organization_id)s AND id = %(artifact_id)s

-- name: get
SELECT id, name, media_type, sha256, size_bytes, created_at, body, uri FROM artifacts
WHERE organization_id = %(organization_id)s AND id = %(artifact_id)s
