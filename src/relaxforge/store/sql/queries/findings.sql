-- name: capability_gap
SELECT t.failure_category, count(*) AS trials, max(t.created_at) AS latest_at
FROM evaluation_trials t
LEFT JOIN environment_versions v ON v.organization_id = t.organization_id AND v.id = t.environment_version_id
WHERE t.organization_id = %(organization_id)s AND t.failure_category IS NOT NULL
  AND (%(environment_id)s::uuid IS NULL OR v.environment_id = %(environment_id)s)
  AND (%(environment_version_id)s::uuid IS NULL OR t.environment_version_id = %(environment_version_id)s)
  AND (%(evaluation_run_id)s::uuid IS NULL OR t.evaluation_run_id = %(evaluation_run_id)s)
  AND (%(training_run_id)s::uuid IS NULL OR t.training_run_id = %(training_run_id)s)
  AND (%(since)s::timestamptz IS NULL OR t.created_at >= %(since)s)
GROUP BY t.failure_category
ORDER BY trials DESC, t.failure_category

-- name: outcome_counts
SELECT count(*) FILTER (WHERE t.status NOT IN ('created', 'running')) AS ended,
  count(*) FILTER (WHERE t.reward IS NOT NULL) AS scored,
  count(*) FILTER (WHERE t.failure_category IS NOT NULL) AS categorised
FROM evaluation_trials t
LEFT JOIN environment_versions v ON v.organization_id = t.organization_id AND v.id = t.environment_version_id
WHERE t.organization_id = %(organization_id)s
  AND (%(environment_id)s::uuid IS NULL OR v.environment_id = %(environment_id)s)
  AND (%(environment_version_id)s::uuid IS NULL OR t.environment_version_id = %(environment_version_id)s)
  AND (%(evaluation_run_id)s::uuid IS NULL OR t.evaluation_run_id = %(evaluation_run_id)s)
  AND (%(training_run_id)s::uuid IS NULL OR t.training_run_id = %(training_run_id)s)
  AND (%(since)s::timestamptz IS NULL OR t.created_at >= %(since)s)

-- name: stage_names
SELECT stage.key AS name, count(*) AS trials, avg((stage.value #>> '{}')::double precision) AS mean
FROM evaluation_trials t
LEFT JOIN environment_versions v ON v.organization_id = t.organization_id AND v.id = t.environment_version_id
CROSS JOIN LATERAL jsonb_each(t.stages) AS stage
WHERE t.organization_id = %(organization_id)s AND t.stages <> '{}' AND jsonb_typeof(stage.value) = 'number'
  AND (%(environment_id)s::uuid IS NULL OR v.environment_id = %(environment_id)s)
  AND (%(environment_version_id)s::uuid IS NULL OR t.environment_version_id = %(environment_version_id)s)
  AND (%(evaluation_run_id)s::uuid IS NULL OR t.evaluation_run_id = %(evaluation_run_id)s)
  AND (%(training_run_id)s::uuid IS NULL OR t.training_run_id = %(training_run_id)s)
  AND (%(since)s::timestamptz IS NULL OR t.created_at >= %(since)s)
GROUP BY stage.key
ORDER BY stage.key

-- name: partial_rewards
SELECT t.id, t.trial_number, t.task_index, t.attempt_no, t.retry_index, t.evaluation_run_id, t.training_run_id,
  t.environment_version_id, t.status, t.mode, t.seed, t.world_seed, t.reward, t.reward_status, t.stages,
  t.failure_category, t.created_at, v.environment_id, v.number AS version_number, e.name AS environment_name,
  r.id AS rollout_id
FROM evaluation_trials t
LEFT JOIN environment_versions v ON v.organization_id = t.organization_id AND v.id = t.environment_version_id
LEFT JOIN environments e ON e.organization_id = v.organization_id AND e.id = v.environment_id
LEFT JOIN rollouts r ON r.organization_id = t.organization_id AND r.trial_id = t.id
WHERE t.organization_id = %(organization_id)s AND t.stages <> '{}'
  AND (%(environment_id)s::uuid IS NULL OR v.environment_id = %(environment_id)s)
  AND (%(environment_version_id)s::uuid IS NULL OR t.environment_version_id = %(environment_version_id)s)
  AND (%(evaluation_run_id)s::uuid IS NULL OR t.evaluation_run_id = %(evaluation_run_id)s)
  AND (%(training_run_id)s::uuid IS NULL OR t.training_run_id = %(training_run_id)s)
  AND (%(since)s::timestamptz IS NULL OR t.created_at >= %(since)s)
  AND (%(before_at)s::timestamptz IS NULL OR (t.created_at, t.id) < (%(before_at)s, %(before_id)s::uuid))
ORDER BY t.created_at DESC, t.id DESC
LIMIT %(limit)s
