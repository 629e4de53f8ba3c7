-- name: create
INSERT INTO evaluation_trials (organization_id, evaluation_run_id, environment_version_id, trial_number, task_index,
  attempt_no, mode, seed, world_seed, agent_name, agent_version, model_name)
SELECT %(organization_id)s, %(run_id)s, %(environment_version_id)s,
  task_index * %(attempt_count)s + attempt_no, task_index, attempt_no, 'eval', %(seed)s + attempt_no - 1,
  %(world_seed)s, %(agent_name)s, %(agent_version)s, %(model_name)s
FROM generate_series(1, %(attempt_count)s) AS attempt_no, generate_series(0, %(tasks)s - 1) AS task_index
ON CONFLICT (organization_id, evaluation_run_id, task_index, attempt_no, retry_index) DO NOTHING

-- name: created
SELECT id, trial_number, task_index, attempt_no, retry_index, seed, world_seed FROM evaluation_trials
WHERE organization_id = %(organization_id)s AND evaluation_run_id = %(run_id)s AND status = 'created'
ORDER BY attempt_no, task_index, retry_index

-- name: start
UPDATE evaluation_trials SET status = 'running', phase = 'environment', lease_token = %(lease_token)s,
  session_key = %(session_key)s, started_at = clock_timestamp()
WHERE organization_id = %(organization_id)s AND id = %(trial_id)s
  AND (status = 'created' OR (status = 'running' AND lease_token = %(lease_token)s))

-- name: phase
UPDATE evaluation_trials SET phase = %(phase)s
WHERE organization_id = %(organization_id)s AND id = %(trial_id)s AND status = 'running'
  AND lease_token = %(lease_token)s

-- name: standing
SELECT status, lease_token, trial_number FROM evaluation_trials
WHERE organization_id = %(organization_id)s AND id = %(trial_id)s

-- name: finish
UPDATE evaluation_trials SET status = %(status)s, phase = NULL, reward = %(reward)s,
  reward_status = %(reward_status)s, raw_reward = %(raw_reward)s, stages = %(stages)s, metrics = %(metrics)s,
  failure_category = %(failure_category)s, failure_message = %(failure_message)s, turns = %(turns)s,
  prompt_tokens = %(prompt_tokens)s, completion_tokens = %(completion_tokens)s, duration_s = %(duration_s)s,
  durations = %(durations)s, step_count = %(step_count)s, log_truncated = %(log_truncated)s,
  sanitised = %(sanitised)s, trajectory_artifact_id = %(trajectory_artifact_id)s,
  session_artifact_id = %(session_artifact_id)s, ended_at = clock_timestamp()
WHERE organization_id = %(organization_id)s AND id = %(trial_id)s AND status = 'running'
  AND lease_token = %(lease_token)s

-- name: add_rollout
INSERT INTO rollouts (organization_id, trial_id, environment_version_id, evaluation_run_id, seed, reward, stages,
  failure_category, trajectory_artifact_id, step_count)
SELECT organization_id, id, environment_version_id, evaluation_run_id, seed, reward, stages, failure_category,
  trajectory_artifact_id, coalesce(step_count, 0)
FROM evaluation_trials WHERE organization_id = %(organization_id)s AND id = %(trial_id)s
RETURNING id

-- name: lose
UPDATE evaluation_trials SET status = 'failed', phase = NULL, reward = NULL, reward_status = 'not_scored',
  failure_category = 'worker_lost', failure_message = %(message)s, lease_token = %(lease_token)s,
  ended_at = clock_timestamp()
WHERE organization_id = %(organization_id)s AND evaluation_run_id = %(run_id)s AND status = 'running'
  AND (%(trial_id)s::uuid IS NULL OR id = %(trial_id)s)
RETURNING id

-- name: retry
INSERT INTO evaluation_trials (organization_id, evaluation_run_id, environment_version_id, trial_number, task_index,
  attempt_no, retry_index, retry_of_id, mode, seed, world_seed, agent_name, agent_version, model_name)
SELECT organization_id, evaluation_run_id, environment_version_id, trial_number, task_index, attempt_no,
  retry_index + 1, id, mode, seed, world_seed, agent_name, agent_version, model_name
FROM evaluation_trials
WHERE organization_id = %(organization_id)s AND id = %(trial_id)s AND retry_index < %(most_retries)s
ON CONFLICT (organization_id, evaluation_run_id, task_index, attempt_no, retry_index) DO NOTHING

-- name: close_open
WITH closed AS (
  UPDATE evaluation_trials SET status = 'failed', phase = NULL, reward = NULL, reward_status = 'not_scored',
    failure_category = %(category)s, failure_message = %(message)s, ended_at = clock_timestamp()
  WHERE organization_id = %(organization_id)s AND evaluation_run_id = %(run_id)s AND status IN ('created', 'running')
  RETURNING *
)
INSERT INTO rollouts (organization_id, trial_id, environment_version_id, evaluation_run_id, seed, failure_category)
SELECT organization_id, id, environment_version_id, evaluation_run_id, seed, failure_category FROM closed

-- name: open_count
SELECT count(*) AS open FROM evaluation_trials
WHERE organization_id = %(organization_id)s AND evaluation_run_id = %(run_id)s AND status IN ('created', 'running')

-- name: attempts
SELECT t.id, t.trial_number, t.task_index, t.attempt_no, t.retry_index, t.retry_of_id, t.status, t.phase, t.reward,
  t.reward_status, t.failure_category, t.failure_message, t.stages, t.step_count, t.turns, t.duration_s, t.seed, t.world_seed,
  t.started_at, t.ended_at, r.id AS rollout_id
FROM evaluation_trials t
LEFT JOIN rollouts r ON r.organization_id = t.organization_id AND r.trial_id = t.id
WHERE t.organization_id = %(organization_id)s AND t.evaluation_run_id = %(run_id)s
ORDER BY t.task_index, t.attempt_no, t.retry_index

-- name: get
SELECT t.*, v.environment_id, v.number AS version_number, e.name AS environment_name, r.id AS rollout_id,
  retried.id AS retried_by_id, (runs.configuration->>'pass_threshold')::float8 AS pass_threshold
FROM evaluation_trials t
LEFT JOIN evaluation_runs runs ON runs.organization_id = t.organization_id AND runs.id = t.evaluation_run_id
LEFT JOIN environment_versions v ON v.organization_id = t.organization_id AND v.id = t.environment_version_id
LEFT JOIN environments e ON e.organization_id = v.organization_id AND e.id = v.environment_id
LEFT JOIN rollouts r ON r.organization_id = t.organization_id AND r.trial_id = t.id
LEFT JOIN evaluation_trials retried ON retried.organization_id = t.organization_id AND retried.retry_of_id = t.id
WHERE t.organization_id = %(organization_id)s AND t.id = %(trial_id)s

-- name: trials
SELECT t.*, v.environment_id, v.number AS version_number, e.name AS environment_name, r.id AS rollout_id,
  (runs.configuration->>'pass_threshold')::float8 AS pass_threshold
FROM evaluation_trials t
LEFT JOIN evaluation_runs runs ON runs.organization_id = t.organization_id AND runs.id = t.evaluation_run_id
LEFT JOIN environment_versions v ON v.organization_id = t.organization_id AND v.id = t.environment_version_id
LEFT JOIN environments e ON e.organization_id = v.organization_id AND e.id = v.environment_id
LEFT JOIN rollouts r ON r.organization_id = t.organization_id AND r.trial_id = t.id
WHERE t.organization_id = %(organization_id)s
  AND (%(evaluation_run_id)s::uuid IS NULL OR t.evaluation_run_id = %(evaluation_run_id)s)
  AND (%(training_run_id)s::uuid IS NULL OR t.training_run_id = %(training_run_id)s)
  AND (%(environment_id)s::uuid IS NULL OR v.environment_id = %(environment_id)s)
  AND (%(environment_version_id)s::uuid IS NULL OR t.environment_version_id = %(environment_version_id)s)
  AND (%(status)s::text IS NULL OR t.status = %(status)s)
  AND (%(failure_category)s::text IS NULL OR t.failure_category = %(failure_category)s)
  AND (%(mode)s::text IS NULL OR t.mode = %(mode)s)
  AND (%(since)s::timestamptz IS NULL OR t.created_at >= %(since)s)
  AND (%(before_at)s::timestamptz IS NULL OR (t.created_at, t.id) < (%(before_at)s, %(before_id)s::uuid))
ORDER BY t.created_at DESC, t.id DESC
LIMIT %(limit)s

-- name: neighbours_in_evaluation
SELECT earlier_id, later_id FROM (
  SELECT id, lag(id) OVER attempts AS earlier_id, lead(id) OVER attempts AS later_id
  FROM evaluation_trials
  WHERE organization_id = %(organization_id)s AND evaluation_run_id = %(run_id)s
  WINDOW attempts AS (ORDER BY task_index, attempt_no, retry_index)
) AS run WHERE id = %(trial_id)s

-- name: neighbours_in_training
SELECT
  (SELECT id FROM evaluation_trials WHERE organization_id = %(organization_id)s AND training_run_id = %(run_id)s
    AND (created_at, id) < (%(created_at)s, %(trial_id)s) ORDER BY created_at DESC, id DESC LIMIT 1) AS earlier_id,
  (SELECT id FROM evaluation_trials WHERE organization_id = %(organization_id)s AND training_run_id = %(run_id)s
    AND (created_at, id) > (%(created_at)s, %(trial_id)s) ORDER BY created_at, id LIMIT 1) AS later_id
