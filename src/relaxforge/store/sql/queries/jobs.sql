-- name: lock_key
SELECT pg_advisory_xact_lock(hashtextextended(%(organization_id)s::text || '/' || %(idempotency_key)s::text, 0))

-- name: by_key
SELECT * FROM jobs WHERE organization_id = %(organization_id)s AND idempotency_key = %(idempotency_key)s

-- name: enqueue
INSERT INTO jobs (organization_id, evaluation_run_id, priority, max_attempts, idempotency_key, run_at)
VALUES (%(organization_id)s, %(evaluation_run_id)s, %(priority)s, %(max_attempts)s, %(idempotency_key)s,
  clock_timestamp())
RETURNING id

-- name: announce
SELECT pg_notify('relaxforge_jobs', '')

-- name: claim
SELECT claimed_job_id, claimed_organization_id, claimed_lease_token
FROM claim_job(%(worker_id)s, %(lease_s)s, %(only_organization)s)

-- name: get
SELECT * FROM jobs WHERE organization_id = %(organization_id)s AND id = %(job_id)s

-- name: of_run
SELECT * FROM jobs WHERE organization_id = %(organization_id)s AND evaluation_run_id = %(evaluation_run_id)s
FOR UPDATE

-- name: hold
SELECT * FROM jobs WHERE organization_id = %(organization_id)s AND id = %(job_id)s
  AND lease_token = %(lease_token)s AND state = 'running'
FOR UPDATE

-- name: renew
UPDATE jobs SET lease_until = clock_timestamp() + make_interval(secs => %(lease_s)s)
WHERE organization_id = %(organization_id)s AND id = %(job_id)s AND lease_token = %(lease_token)s AND state = 'running'
RETURNING cancel_mode

-- name: look
SELECT cancel_mode FROM jobs
WHERE organization_id = %(organization_id)s AND id = %(job_id)s AND lease_token = %(lease_token)s AND state = 'running'

-- name: finish
UPDATE jobs SET state = %(state)s, last_error = %(error)s, lease_token = NULL, lease_until = NULL,
  ended_at = clock_timestamp()
WHERE organization_id = %(organization_id)s AND id = %(job_id)s AND lease_token = %(lease_token)s AND state = 'running'

-- name: release
UPDATE jobs SET state = 'queued', last_error = %(error)s, lease_token = NULL, lease_until = NULL,
  attempt = attempt - CASE WHEN %(counts)s THEN 0 ELSE 1 END,
  run_at = clock_timestamp() + make_interval(secs => %(delay_s)s)
WHERE organization_id = %(organization_id)s AND id = %(job_id)s AND lease_token = %(lease_token)s AND state = 'running'

-- name: cancel_queued
UPDATE jobs SET state = 'cancelled', cancel_mode = %(mode)s, ended_at = clock_timestamp()
WHERE organization_id = %(organization_id)s AND id = %(job_id)s AND state = 'queued'

-- name: cancel_running
UPDATE jobs SET cancel_mode = %(mode)s
WHERE organization_id = %(organization_id)s AND id = %(job_id)s AND state = 'running'
  AND cancel_mode IS DISTINCT FROM 'at_once'

-- name: count_late
UPDATE jobs SET late_results = late_results + 1
WHERE organization_id = %(organization_id)s AND id = %(job_id)s
