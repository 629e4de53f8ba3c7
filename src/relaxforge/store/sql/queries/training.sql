-- name: record_run
INSERT INTO training_runs (organization_id, name, source_key, configuration)
VALUES (%(organization_id)s, %(run_name)s, %(source_key)s, %(configuration)s)
ON CONFLICT (organization_id, source_key) DO UPDATE SET name = excluded.name,
  configuration = excluded.configuration, last_seen_at = clock_timestamp()
RETURNING id

-- name: hold_run
SELECT session_count FROM training_runs
WHERE organization_id = %(organization_id)s AND id = %(run_id)s FOR UPDATE

-- name: known_sessions
SELECT session_key FROM evaluation_trials
WHERE organization_id = %(organization_id)s AND training_run_id = %(run_id)s AND session_key = ANY(%(keys)s)

-- name: add_session
INSERT INTO evaluation_trials (organization_id, training_run_id, trial_number, task_index, attempt_no, session_key,
  rollout_step, group_key, mode, seed, world_seed, model_name, status, reward, reward_status, raw_reward, stages,
  metrics, failure_category, failure_message, turns, prompt_tokens, completion_tokens, duration_s, durations,
  step_count, log_truncated, sanitised, trajectory_artifact_id, session_artifact_id, created_at, ended_at)
SELECT %(organization_id)s, id, %(trial_number)s, %(task_index)s, %(attempt_no)s, %(session_key)s,
  %(rollout_step)s, %(group_key)s, %(mode)s, %(seed)s, %(world_seed)s, coalesce(configuration ->> 'model', ''),
  %(status)s, %(reward)s, %(reward_status)s, %(raw_reward)s, %(stages)s, %(metrics)s, %(failure_category)s,
  %(failure_message)s, %(turns)s, %(prompt_tokens)s, %(completion_tokens)s, %(duration_s)s, %(durations)s,
  %(step_count)s, %(log_truncated)s, %(sanitised)s, %(trajectory_artifact_id)s, %(session_artifact_id)s,
  clock_timestamp(), clock_timestamp()
FROM training_runs WHERE organization_id = %(organization_id)s AND id = %(run_id)s
RETURNING id

-- name: add_rollout
INSERT INTO rollouts (organization_id, trial_id, training_run_id, seed, reward, stages, failure_category,
  trajectory_artifact_id, step_count, created_at)
SELECT organization_id, id, training_run_id, seed, reward, stages, failure_category, trajectory_artifact_id,
  coalesce(step_count, 0), created_at
FROM evaluation_trials WHERE organization_id = %(organization_id)s AND id = %(trial_id)s

-- name: touch_run
UPDATE training_runs SET session_count = %(session_count)s, last_seen_at = clock_timestamp()
WHERE organization_id = %(organization_id)s AND id = %(run_id)s

-- name: add_step
INSERT INTO training_steps (organization_id, training_run_id, kind, step, name, incarnation, metrics)
VALUES (%(organization_id)s, %(run_id)s, %(kind)s, %(step)s, %(step_name)s, %(incarnation)s, %(metrics)s)
ON CONFLICT DO NOTHING

-- name: runs
SELECT r.*, last.step AS last_step, last.created_at AS last_step_at
FROM training_runs r
LEFT JOIN LATERAL (
  SELECT step, created_at FROM training_steps s
  WHERE s.organization_id = r.organization_id AND s.training_run_id = r.id AND s.kind = 'step' AND s.name = ''
  ORDER BY step DESC, incarnation DESC LIMIT 1
) last ON true
WHERE r.organization_id = %(organization_id)s
  AND (%(run_id)s::uuid IS NULL OR r.id = %(run_id)s)
  AND (%(before_at)s::timestamptz IS NULL OR (r.created_at, r.id) < (%(before_at)s, %(before_id)s::uuid))
ORDER BY r.created_at DESC, r.id DESC
LIMIT %(limit)s

-- name: outcomes
SELECT mode, status, failure_category, count(*) AS count FROM evaluation_trials
WHERE organization_id = %(organization_id)s AND training_run_id = %(run_id)s
GROUP BY mode, status, failure_category ORDER BY mode, status, failure_category NULLS FIRST

-- name: metric_names
SELECT DISTINCT jsonb_object_keys(metrics) AS name FROM (
  (SELECT metrics FROM training_steps WHERE organization_id = %(organization_id)s AND training_run_id = %(run_id)s
    AND kind = 'step' ORDER BY step DESC, incarnation DESC LIMIT 20)
  UNION ALL
  (SELECT metrics FROM training_steps WHERE organization_id = %(organization_id)s AND training_run_id = %(run_id)s
    AND kind = 'eval' ORDER BY step DESC, incarnation DESC LIMIT 20)
) newest ORDER BY name

-- name: series
SELECT DISTINCT ON (name, step) step, name, incarnation, created_at,
  coalesce((SELECT jsonb_object_agg(key, value) FROM jsonb_each(metrics) WHERE key = ANY(%(names)s)), '{}') AS metrics
FROM training_steps
WHERE organization_id = %(organization_id)s AND training_run_id = %(run_id)s AND kind = %(kind)s
ORDER BY name, step, incarnation DESC
