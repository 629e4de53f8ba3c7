-- name: create_configuration
INSERT INTO evaluator_configurations (organization_id, environment_id, name, attempt_count, agent_name, agent_version,
  model, seed, world_seed, concurrency, budget, pass_threshold)
VALUES (%(organization_id)s, %(environment_id)s, %(name)s, %(attempt_count)s, %(agent_name)s, %(agent_version)s,
  %(model)s, %(seed)s, %(world_seed)s, %(concurrency)s, %(budget)s, %(pass_threshold)s)
ON CONFLICT (organization_id, environment_id, name) DO NOTHING
RETURNING *

-- name: configuration
SELECT * FROM evaluator_configurations WHERE organization_id = %(organization_id)s AND id = %(configuration_id)s

-- name: configurations
SELECT c.*, e.name AS environment_name
FROM evaluator_configurations c
JOIN environments e ON e.organization_id = c.organization_id AND e.id = c.environment_id
WHERE c.organization_id = %(organization_id)s
  AND (%(environment_id)s::uuid IS NULL OR c.environment_id = %(environment_id)s)
  AND (%(before_at)s::timestamptz IS NULL OR (c.created_at, c.id) < (%(before_at)s, %(before_id)s::uuid))
ORDER BY c.created_at DESC, c.id DESC
LIMIT %(limit)s

-- name: environment
SELECT id FROM environments WHERE organization_id = %(organization_id)s AND id = %(environment_id)s

-- name: version
SELECT id, environment_id FROM environment_versions WHERE organization_id = %(organization_id)s AND id = %(version_id)s

-- name: create_run
INSERT INTO evaluation_runs (organization_id, environment_version_id, evaluator_configuration_id, configuration,
  reset_of_id, reset_mode, world_seed, created_by)
VALUES (%(organization_id)s, %(environment_version_id)s, %(evaluator_configuration_id)s, %(configuration)s,
  %(reset_of_id)s, %(reset_mode)s, %(world_seed)s, %(created_by)s)
RETURNING id

-- name: run
SELECT r.*, v.environment_id, v.number AS version_number, e.name AS environment_name, j.id AS job_id,
  j.state AS job_state, j.attempt AS job_attempt, j.max_attempts, j.cancel_mode, j.last_error, j.late_results,
  j.worker_id, j.run_at
FROM evaluation_runs r
JOIN environment_versions v ON v.organization_id = r.organization_id AND v.id = r.environment_version_id
JOIN environments e ON e.organization_id = v.organization_id AND e.id = v.environment_id
LEFT JOIN jobs j ON j.organization_id = r.organization_id AND j.evaluation_run_id = r.id
WHERE r.organization_id = %(organization_id)s AND r.id = %(run_id)s

-- name: runs
SELECT r.*, v.environment_id, v.number AS version_number, e.name AS environment_name, j.id AS job_id,
  j.state AS job_state, j.cancel_mode, j.last_error
FROM evaluation_runs r
JOIN environment_versions v ON v.organization_id = r.organization_id AND v.id = r.environment_version_id
JOIN environments e ON e.organization_id = v.organization_id AND e.id = v.environment_id
LEFT JOIN jobs j ON j.organization_id = r.organization_id AND j.evaluation_run_id = r.id
WHERE r.organization_id = %(organization_id)s
  AND (%(environment_id)s::uuid IS NULL OR v.environment_id = %(environment_id)s)
  AND (%(environment_version_id)s::uuid IS NULL OR r.environment_version_id = %(environment_version_id)s)
  AND (%(evaluator_configuration_id)s::uuid IS NULL OR r.evaluator_configuration_id = %(evaluator_configuration_id)s)
  AND (%(status)s::text IS NULL OR r.status = %(status)s)
  AND (%(before_at)s::timestamptz IS NULL OR (r.created_at, r.id) < (%(before_at)s, %(before_id)s::uuid))
ORDER BY r.created_at DESC, r.id DESC
LIMIT %(limit)s

-- name: begin_run
UPDATE evaluation_runs SET status = 'running', started_at = coalesce(started_at, clock_timestamp())
WHERE organization_id = %(organization_id)s AND id = %(run_id)s AND status IN ('queued', 'running')

-- name: wait_again
UPDATE evaluation_runs SET status = 'queued', error = %(error)s
WHERE organization_id = %(organization_id)s AND id = %(run_id)s AND status = 'running'

-- name: end_run
UPDATE evaluation_runs SET status = %(status)s, summary = %(summary)s, error = %(error)s, ended_at = clock_timestamp()
WHERE organization_id = %(organization_id)s AND id = %(run_id)s AND status IN ('queued', 'running')
