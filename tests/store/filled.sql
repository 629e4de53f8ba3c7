-- One row of everything for the organization and the person in %(organization)s, %(user)s. A new table needs a row here.
INSERT INTO environments (organization_id, name) VALUES (%(organization)s, 'sum');
INSERT INTO environment_secrets (organization_id, environment_id, name, ciphertext)
  SELECT organization_id, id, 'API_KEY', 'x' FROM environments WHERE organization_id = %(organization)s;
INSERT INTO artifacts (organization_id, name, sha256, size_bytes, body)
  VALUES (%(organization)s, 'bundle', sha256('bytes'), 5, 'bytes');
INSERT INTO environment_versions (organization_id, environment_id, number, digest, manifest, files, bundle_artifact_id)
  SELECT e.organization_id, e.id, 1, sha256('content'), '{}', '[]', a.id FROM environments e JOIN artifacts a USING (organization_id)
  WHERE organization_id = %(organization)s;
INSERT INTO evaluator_configurations (organization_id, environment_id, name, attempt_count, agent_name, agent_version, model)
  SELECT organization_id, id, 'default', 5, 'agent', '1', '{}' FROM environments WHERE organization_id = %(organization)s;
INSERT INTO evaluation_runs (organization_id, environment_version_id, evaluator_configuration_id, configuration, world_seed)
  SELECT v.organization_id, v.id, c.id, '{}', 0
  FROM environment_versions v JOIN evaluator_configurations c USING (organization_id) WHERE organization_id = %(organization)s;
INSERT INTO jobs (organization_id, evaluation_run_id)
  SELECT organization_id, id FROM evaluation_runs WHERE organization_id = %(organization)s;
INSERT INTO training_runs (organization_id, name, source_key) VALUES (%(organization)s, 'run', 'run');
INSERT INTO training_steps (organization_id, training_run_id, kind, step, metrics)
  SELECT organization_id, id, 'step', 0, '{}' FROM training_runs WHERE organization_id = %(organization)s;
INSERT INTO evaluation_trials (organization_id, evaluation_run_id, trial_number, attempt_no, seed)
  SELECT organization_id, id, 1, 1, 0 FROM evaluation_runs WHERE organization_id = %(organization)s;
INSERT INTO rollouts (organization_id, trial_id, seed, reward)
  SELECT organization_id, id, 0, 1 FROM evaluation_trials WHERE organization_id = %(organization)s;
INSERT INTO audit_log (organization_id, user_id, action) VALUES (%(organization)s, %(user)s, 'signed_in');
INSERT INTO browser_sessions (organization_id, user_id, token_hash, csrf_token, expires_at)
  VALUES (%(organization)s, %(user)s, sha256(%(organization)s::text::bytea), 'csrf', now() + interval '1 day');
INSERT INTO api_tokens (organization_id, user_id, token_hash, name, scopes, expires_at)
  VALUES (%(organization)s, %(user)s, sha256(%(user)s::text::bytea), 'token', '{read}', now() + interval '1 day');
