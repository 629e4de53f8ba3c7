-- name: limits
SELECT set_config('statement_timeout', %(statement_ms)s::text, true),
  set_config('idle_in_transaction_session_timeout', %(idle_ms)s::text, true),
  -- Filters that are not given fold away only when the plan is made for these very values.
  set_config('plan_cache_mode', 'force_custom_plan', true),
  set_config('jit', 'off', true)

-- name: counts
SELECT count(*) AS "all",
  count(*) FILTER (WHERE r.reward = 1) AS successful,
  count(*) FILTER (WHERE r.reward < 1) AS failed,
  count(*) FILTER (WHERE r.reward > 0 AND r.reward < 1) AS recovery,
  count(*) FILTER (WHERE r.reward IS NULL) AS unscored
FROM rollouts r
WHERE r.organization_id = %(organization_id)s
  AND (%(environment_id)s::uuid IS NULL OR r.environment_version_id IN (
    SELECT v.id FROM environment_versions v
    WHERE v.organization_id = %(organization_id)s AND v.environment_id = %(environment_id)s))
  AND (%(environment_version_id)s::uuid IS NULL OR r.environment_version_id = %(environment_version_id)s)
  AND (%(evaluation_run_id)s::uuid IS NULL OR r.evaluation_run_id = %(evaluation_run_id)s)
  AND (%(training_run_id)s::uuid IS NULL OR r.training_run_id = %(training_run_id)s)
  AND (%(since)s::timestamptz IS NULL OR r.created_at >= %(since)s)
  AND (%(until)s::timestamptz IS NULL OR r.created_at < %(until)s)

-- name: out_of_range
SELECT count(*) AS out_of_range
FROM rollouts r
JOIN evaluation_trials t ON t.organization_id = r.organization_id AND t.id = r.trial_id
WHERE r.organization_id = %(organization_id)s AND r.reward IS NULL AND t.reward_status = 'out_of_range'
  AND (%(environment_id)s::uuid IS NULL OR r.environment_version_id IN (
    SELECT v.id FROM environment_versions v
    WHERE v.organization_id = %(organization_id)s AND v.environment_id = %(environment_id)s))
  AND (%(environment_version_id)s::uuid IS NULL OR r.environment_version_id = %(environment_version_id)s)
  AND (%(evaluation_run_id)s::uuid IS NULL OR r.evaluation_run_id = %(evaluation_run_id)s)
  AND (%(training_run_id)s::uuid IS NULL OR r.training_run_id = %(training_run_id)s)
  AND (%(since)s::timestamptz IS NULL OR r.created_at >= %(since)s)
  AND (%(until)s::timestamptz IS NULL OR r.created_at < %(until)s)

-- name: total
SELECT count(*) AS total
FROM rollouts r
WHERE r.organization_id = %(organization_id)s
  AND CASE %(kind)s::text WHEN 'successful' THEN r.reward = 1 WHEN 'failed' THEN r.reward < 1
    WHEN 'recovery' THEN r.reward > 0 AND r.reward < 1 ELSE true END
  AND (%(environment_id)s::uuid IS NULL OR r.environment_version_id IN (
    SELECT v.id FROM environment_versions v
    WHERE v.organization_id = %(organization_id)s AND v.environment_id = %(environment_id)s))
  AND (%(environment_version_id)s::uuid IS NULL OR r.environment_version_id = %(environment_version_id)s)
  AND (%(evaluation_run_id)s::uuid IS NULL OR r.evaluation_run_id = %(evaluation_run_id)s)
  AND (%(training_run_id)s::uuid IS NULL OR r.training_run_id = %(training_run_id)s)
  AND (%(since)s::timestamptz IS NULL OR r.created_at >= %(since)s)
  AND (%(until)s::timestamptz IS NULL OR r.created_at < %(until)s)

-- name: page
SELECT r.id, r.created_at
FROM rollouts r
WHERE r.organization_id = %(organization_id)s
  AND CASE %(kind)s::text WHEN 'successful' THEN r.reward = 1 WHEN 'failed' THEN r.reward < 1
    WHEN 'recovery' THEN r.reward > 0 AND r.reward < 1 ELSE true END
  AND (%(environment_id)s::uuid IS NULL OR r.environment_version_id IN (
    SELECT v.id FROM environment_versions v
    WHERE v.organization_id = %(organization_id)s AND v.environment_id = %(environment_id)s))
  AND (%(environment_version_id)s::uuid IS NULL OR r.environment_version_id = %(environment_version_id)s)
  AND (%(evaluation_run_id)s::uuid IS NULL OR r.evaluation_run_id = %(evaluation_run_id)s)
  AND (%(training_run_id)s::uuid IS NULL OR r.training_run_id = %(training_run_id)s)
  AND (%(since)s::timestamptz IS NULL OR r.created_at >= %(since)s)
  AND (%(until)s::timestamptz IS NULL OR r.created_at < %(until)s)
  AND (%(before_at)s::timestamptz IS NULL OR (r.created_at, r.id) < (%(before_at)s, %(before_id)s::uuid))
ORDER BY r.created_at DESC, r.id DESC
LIMIT %(limit)s

-- name: version_pairs
-- One pair for each environment version: the newest of the highest against the oldest of the lowest, each the first row
-- of one index scan.
SELECT * FROM (
  SELECT v.created_at, v.id, 0 AS task_index, best.id AS better_id, worst.id AS worse_id, count(*) OVER () AS total
  FROM environment_versions v
  CROSS JOIN LATERAL (
    SELECT r.id, r.reward FROM rollouts r
    WHERE r.organization_id = v.organization_id AND r.environment_version_id = v.id AND r.reward IS NOT NULL
      AND (%(evaluation_run_id)s::uuid IS NULL OR r.evaluation_run_id = %(evaluation_run_id)s)
      AND (%(training_run_id)s::uuid IS NULL OR r.training_run_id = %(training_run_id)s)
      AND (%(since)s::timestamptz IS NULL OR r.created_at >= %(since)s)
      AND (%(until)s::timestamptz IS NULL OR r.created_at < %(until)s)
    ORDER BY r.reward DESC, r.created_at DESC, r.id DESC LIMIT 1
  ) best
  CROSS JOIN LATERAL (
    SELECT r.id, r.reward FROM rollouts r
    WHERE r.organization_id = v.organization_id AND r.environment_version_id = v.id AND r.reward IS NOT NULL
      AND (%(evaluation_run_id)s::uuid IS NULL OR r.evaluation_run_id = %(evaluation_run_id)s)
      AND (%(training_run_id)s::uuid IS NULL OR r.training_run_id = %(training_run_id)s)
      AND (%(since)s::timestamptz IS NULL OR r.created_at >= %(since)s)
      AND (%(until)s::timestamptz IS NULL OR r.created_at < %(until)s)
    ORDER BY r.reward, r.created_at, r.id LIMIT 1
  ) worst
  WHERE v.organization_id = %(organization_id)s AND best.reward > worst.reward
    AND (%(environment_id)s::uuid IS NULL OR v.environment_id = %(environment_id)s)
    AND (%(environment_version_id)s::uuid IS NULL OR v.id = %(environment_version_id)s)
) pairs
WHERE %(before_at)s::timestamptz IS NULL OR (created_at, id) < (%(before_at)s, %(before_id)s::uuid)
ORDER BY created_at DESC, id DESC
LIMIT %(limit)s

-- name: task_pairs
-- One pair for each Task of each environment version: only attempts at one Task begin with the same prompt.
WITH scored AS (
  SELECT r.id, r.environment_version_id, t.task_index, r.reward, r.created_at
  FROM rollouts r
  JOIN evaluation_trials t ON t.organization_id = r.organization_id AND t.id = r.trial_id
  WHERE r.organization_id = %(organization_id)s AND r.reward IS NOT NULL AND r.environment_version_id IS NOT NULL
    AND (%(environment_version_id)s::uuid IS NULL OR r.environment_version_id = %(environment_version_id)s)
    AND (%(evaluation_run_id)s::uuid IS NULL OR r.evaluation_run_id = %(evaluation_run_id)s)
    AND (%(training_run_id)s::uuid IS NULL OR r.training_run_id = %(training_run_id)s)
    AND (%(since)s::timestamptz IS NULL OR r.created_at >= %(since)s)
    AND (%(until)s::timestamptz IS NULL OR r.created_at < %(until)s)
), best AS (
  SELECT DISTINCT ON (environment_version_id, task_index) * FROM scored
  ORDER BY environment_version_id, task_index, reward DESC, created_at DESC, id DESC
), worst AS (
  SELECT DISTINCT ON (environment_version_id, task_index) * FROM scored
  ORDER BY environment_version_id, task_index, reward, created_at, id
)
SELECT * FROM (
  SELECT v.created_at, v.id, best.task_index, best.id AS better_id, worst.id AS worse_id, count(*) OVER () AS total
  FROM best
  JOIN worst USING (environment_version_id, task_index)
  JOIN environment_versions v ON v.organization_id = %(organization_id)s AND v.id = best.environment_version_id
  WHERE best.reward > worst.reward
    AND (%(environment_id)s::uuid IS NULL OR v.environment_id = %(environment_id)s)
) pairs
WHERE %(before_at)s::timestamptz IS NULL
  OR (created_at, id, -task_index) < (%(before_at)s, %(before_id)s::uuid, -%(before_task)s::integer)
ORDER BY created_at DESC, id DESC, task_index
LIMIT %(limit)s

-- name: by_ids
SELECT r.id, r.trial_id, r.seed, r.reward, r.created_at, r.environment_version_id, r.evaluation_run_id,
  r.training_run_id, r.stages, r.failure_category, t.status, t.world_seed, t.task_index, t.attempt_no, t.agent_name,
  t.agent_version, t.model_name, r.trajectory_artifact_id, t.session_artifact_id,
  coalesce(trajectory.size_bytes, 0) AS trajectory_bytes, coalesce(session.size_bytes, 0) AS session_bytes
FROM rollouts r
JOIN evaluation_trials t ON t.organization_id = r.organization_id AND t.id = r.trial_id
LEFT JOIN artifacts trajectory
  ON trajectory.organization_id = r.organization_id AND trajectory.id = r.trajectory_artifact_id
LEFT JOIN artifacts session ON session.organization_id = t.organization_id AND session.id = t.session_artifact_id
WHERE r.organization_id = %(organization_id)s AND r.id = ANY(%(ids)s::uuid[])

-- name: bodies
SELECT id, body, sha256 FROM artifacts WHERE organization_id = %(organization_id)s AND id = ANY(%(ids)s::uuid[])
