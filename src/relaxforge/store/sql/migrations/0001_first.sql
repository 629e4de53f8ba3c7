-- The first schema. Runs as relaxforge_owner; the roles exist already (sql/roles.sql).
--
-- Every table of an organization has organization_id in its primary key and in every foreign key, so that no key can
-- reach into another organization, row-level security on and forced, and one policy for the application's roles.
-- Nobody but the owner may change the schema, and the owner cannot log in.

CREATE SCHEMA relaxforge AUTHORIZATION relaxforge_owner;
SET LOCAL search_path = relaxforge;

-- The organization and the user of the current transaction. NULL when unset, which matches nothing.
CREATE FUNCTION current_organization() RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE
  AS $$ SELECT nullif(current_setting('app.organization_id', true), '')::uuid $$;
CREATE FUNCTION current_person() RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE
  AS $$ SELECT nullif(current_setting('app.user_id', true), '')::uuid $$;

CREATE TABLE organizations (
  id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  name text NOT NULL CHECK (name <> ''),
  created_at timestamptz NOT NULL DEFAULT now(),
  most_running_jobs integer NOT NULL DEFAULT 4 CHECK (most_running_jobs > 0)
);

CREATE TABLE users (
  id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  email text NOT NULL UNIQUE CHECK (email = lower(email) AND email LIKE '%_@_%'),
  name text NOT NULL DEFAULT '',
  password_hash text NOT NULL,
  must_change_password boolean NOT NULL DEFAULT false,
  created_at timestamptz NOT NULL DEFAULT now(),
  disabled_at timestamptz
);

CREATE TABLE memberships (
  organization_id uuid NOT NULL REFERENCES organizations ON DELETE CASCADE,
  user_id uuid NOT NULL REFERENCES users ON DELETE CASCADE,
  role text NOT NULL CHECK (role IN ('owner', 'member', 'viewer')),
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (organization_id, user_id)
);
CREATE INDEX memberships_of_user ON memberships (user_id, organization_id);

-- A browser that signed in. Only the SHA-256 of its cookie is kept.
CREATE TABLE browser_sessions (
  token_hash bytea PRIMARY KEY CHECK (length(token_hash) = 32),
  user_id uuid NOT NULL REFERENCES users ON DELETE CASCADE,
  organization_id uuid NOT NULL,
  csrf_token text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  last_seen_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz NOT NULL,
  FOREIGN KEY (organization_id, user_id) REFERENCES memberships ON DELETE CASCADE
);
CREATE INDEX browser_sessions_of_user ON browser_sessions (organization_id, user_id);

CREATE TABLE api_tokens (
  organization_id uuid NOT NULL REFERENCES organizations ON DELETE CASCADE,
  id uuid NOT NULL DEFAULT gen_random_uuid(),
  token_hash bytea NOT NULL UNIQUE CHECK (length(token_hash) = 32),
  user_id uuid NOT NULL,
  name text NOT NULL,
  scopes text[] NOT NULL CHECK (scopes <@ ARRAY['read', 'export', 'run', 'publish', 'ingest']),
  created_at timestamptz NOT NULL DEFAULT now(),
  expires_at timestamptz NOT NULL,
  revoked_at timestamptz,
  last_used_at timestamptz,
  PRIMARY KEY (organization_id, id),
  FOREIGN KEY (organization_id, user_id) REFERENCES memberships ON DELETE CASCADE
);
CREATE INDEX api_tokens_of_user ON api_tokens (organization_id, user_id);

CREATE TABLE environments (
  organization_id uuid NOT NULL REFERENCES organizations ON DELETE CASCADE,
  id uuid NOT NULL DEFAULT gen_random_uuid(),
  name text NOT NULL CHECK (name <> ''),
  description text NOT NULL DEFAULT '',
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (organization_id, id),
  UNIQUE (organization_id, name)
);

-- Secrets of an environment, encrypted before they come here (MultiFernet).
CREATE TABLE environment_secrets (
  organization_id uuid NOT NULL,
  environment_id uuid NOT NULL,
  name text NOT NULL,
  ciphertext bytea NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (organization_id, environment_id, name),
  FOREIGN KEY (organization_id, environment_id) REFERENCES environments ON DELETE CASCADE
);

-- Bytes that somebody stored: in body, or at uri (an fsspec path).
CREATE TABLE artifacts (
  organization_id uuid NOT NULL REFERENCES organizations ON DELETE CASCADE,
  id uuid NOT NULL DEFAULT gen_random_uuid(),
  name text NOT NULL,
  media_type text NOT NULL DEFAULT 'application/octet-stream',
  sha256 bytea NOT NULL CHECK (length(sha256) = 32),
  size_bytes bigint NOT NULL CHECK (size_bytes >= 0),
  body bytea,
  uri text,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (organization_id, id),
  CHECK ((body IS NULL) <> (uri IS NULL))
);

CREATE TABLE environment_versions (
  organization_id uuid NOT NULL,
  id uuid NOT NULL DEFAULT gen_random_uuid(),
  environment_id uuid NOT NULL,
  number integer NOT NULL CHECK (number > 0),
  digest bytea NOT NULL CHECK (length(digest) = 32),
  manifest jsonb NOT NULL,
  files jsonb NOT NULL,
  bundle_artifact_id uuid NOT NULL,
  published_by uuid,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (organization_id, id),
  UNIQUE (organization_id, environment_id, digest),
  UNIQUE (organization_id, environment_id, number),
  FOREIGN KEY (organization_id, environment_id) REFERENCES environments,
  FOREIGN KEY (organization_id, bundle_artifact_id) REFERENCES artifacts
);
CREATE INDEX environment_versions_bundle ON environment_versions (organization_id, bundle_artifact_id);

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% rows are immutable', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER environment_versions_immutable BEFORE UPDATE OR DELETE ON environment_versions
  FOR EACH ROW EXECUTE FUNCTION refuse_change();

CREATE TABLE evaluator_configurations (
  organization_id uuid NOT NULL,
  id uuid NOT NULL DEFAULT gen_random_uuid(),
  environment_id uuid NOT NULL,
  name text NOT NULL CHECK (name <> ''),
  attempt_count integer NOT NULL CHECK (attempt_count BETWEEN 1 AND 8),
  agent_name text NOT NULL,
  agent_version text NOT NULL,
  model jsonb NOT NULL,
  seed integer NOT NULL DEFAULT 0,
  world_seed integer NOT NULL DEFAULT 0,
  concurrency integer NOT NULL DEFAULT 2 CHECK (concurrency BETWEEN 1 AND 64),
  budget jsonb NOT NULL DEFAULT '{}',
  pass_threshold double precision NOT NULL DEFAULT 1 CHECK (pass_threshold > 0 AND pass_threshold <= 1),
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (organization_id, id),
  UNIQUE (organization_id, environment_id, name),
  FOREIGN KEY (organization_id, environment_id) REFERENCES environments
);

-- One job's worth of Trials. A Reset makes a new one, so that attempts of different worlds never pool.
CREATE TABLE evaluation_runs (
  organization_id uuid NOT NULL,
  id uuid NOT NULL DEFAULT gen_random_uuid(),
  environment_version_id uuid NOT NULL,
  evaluator_configuration_id uuid NOT NULL,
  configuration jsonb NOT NULL,
  reset_of_id uuid,
  reset_mode text CHECK (reset_mode IN ('new_workspace', 'new_world')),
  world_seed integer NOT NULL,
  status text NOT NULL DEFAULT 'queued' CHECK (status IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')),
  error text,
  summary jsonb,
  created_by uuid,
  created_at timestamptz NOT NULL DEFAULT now(),
  started_at timestamptz,
  ended_at timestamptz,
  PRIMARY KEY (organization_id, id),
  FOREIGN KEY (organization_id, environment_version_id) REFERENCES environment_versions,
  FOREIGN KEY (organization_id, evaluator_configuration_id) REFERENCES evaluator_configurations,
  FOREIGN KEY (organization_id, reset_of_id) REFERENCES evaluation_runs,
  CHECK ((reset_of_id IS NULL) = (reset_mode IS NULL))
);
CREATE INDEX evaluation_runs_newest ON evaluation_runs (organization_id, created_at DESC, id DESC);
CREATE INDEX evaluation_runs_of_version ON evaluation_runs (organization_id, environment_version_id, created_at DESC);
CREATE INDEX evaluation_runs_of_configuration ON evaluation_runs (organization_id, evaluator_configuration_id);
CREATE INDEX evaluation_runs_resets ON evaluation_runs (organization_id, reset_of_id);

CREATE TABLE jobs (
  organization_id uuid NOT NULL,
  id uuid NOT NULL DEFAULT gen_random_uuid(),
  evaluation_run_id uuid NOT NULL,
  state text NOT NULL DEFAULT 'queued' CHECK (state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')),
  priority integer NOT NULL DEFAULT 0,
  attempt integer NOT NULL DEFAULT 0,
  max_attempts integer NOT NULL DEFAULT 3 CHECK (max_attempts > 0),
  run_at timestamptz NOT NULL DEFAULT now(),
  lease_token uuid,
  lease_until timestamptz,
  worker_id text,
  cancel_mode text CHECK (cancel_mode IN ('finish_running', 'at_once')),
  idempotency_key text,
  last_error text,
  created_at timestamptz NOT NULL DEFAULT now(),
  ended_at timestamptz,
  PRIMARY KEY (organization_id, id),
  UNIQUE (organization_id, idempotency_key),
  FOREIGN KEY (organization_id, evaluation_run_id) REFERENCES evaluation_runs,
  CHECK ((state = 'running') = (lease_token IS NOT NULL))
);
CREATE INDEX jobs_queued ON jobs (priority DESC, run_at) WHERE state = 'queued';
CREATE INDEX jobs_running ON jobs (organization_id, lease_until) WHERE state = 'running';
CREATE INDEX jobs_of_run ON jobs (organization_id, evaluation_run_id);

-- One invocation of train or rollout that sends its evidence here; name is the run id of its folder.
CREATE TABLE training_runs (
  organization_id uuid NOT NULL REFERENCES organizations ON DELETE CASCADE,
  id uuid NOT NULL DEFAULT gen_random_uuid(),
  name text NOT NULL,
  source_key text NOT NULL,
  configuration jsonb NOT NULL DEFAULT '{}',
  created_at timestamptz NOT NULL DEFAULT now(),
  last_seen_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (organization_id, id),
  UNIQUE (organization_id, source_key)
);
CREATE INDEX training_runs_newest ON training_runs (organization_id, created_at DESC, id DESC);

CREATE TABLE training_steps (
  organization_id uuid NOT NULL,
  training_run_id uuid NOT NULL,
  kind text NOT NULL CHECK (kind IN ('step', 'eval')),
  step integer NOT NULL,
  name text NOT NULL DEFAULT '',
  incarnation integer NOT NULL DEFAULT 0,
  metrics jsonb NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (organization_id, training_run_id, kind, name, step, incarnation),
  FOREIGN KEY (organization_id, training_run_id) REFERENCES training_runs
);

-- One attempt, of an evaluation run or of a training run. The row exists before the attempt starts.
CREATE TABLE evaluation_trials (
  organization_id uuid NOT NULL,
  id uuid NOT NULL DEFAULT gen_random_uuid(),
  evaluation_run_id uuid,
  training_run_id uuid,
  environment_version_id uuid,
  trial_number integer NOT NULL CHECK (trial_number > 0),
  task_index integer NOT NULL DEFAULT 0,
  attempt_no integer NOT NULL CHECK (attempt_no > 0),
  retry_index integer NOT NULL DEFAULT 0,
  retry_of_id uuid,
  session_key text,
  rollout_step integer,
  group_key text,
  mode text NOT NULL DEFAULT 'eval' CHECK (mode IN ('train', 'eval')),
  seed bigint NOT NULL,
  world_seed bigint NOT NULL DEFAULT 0,
  status text NOT NULL DEFAULT 'created' CHECK (status IN
    ('created', 'running', 'completed', 'truncated', 'failed', 'dropped', 'filtered')),
  phase text,
  lease_token uuid,
  reward double precision CHECK (reward >= 0 AND reward <= 1),
  reward_status text CHECK (reward_status IN ('scored', 'not_scored', 'out_of_range')),
  raw_reward text,
  stages jsonb NOT NULL DEFAULT '{}',
  metrics jsonb NOT NULL DEFAULT '{}',
  failure_category text,
  failure_message text,
  agent_name text NOT NULL DEFAULT '',
  agent_version text NOT NULL DEFAULT '',
  model_name text NOT NULL DEFAULT '',
  turns integer,
  prompt_tokens bigint,
  completion_tokens bigint,
  duration_s double precision,
  durations jsonb NOT NULL DEFAULT '{}',
  step_count integer,
  log_truncated boolean NOT NULL DEFAULT false,
  sanitised jsonb NOT NULL DEFAULT '{}',
  trajectory_artifact_id uuid,
  session_artifact_id uuid,
  created_at timestamptz NOT NULL DEFAULT now(),
  started_at timestamptz,
  ended_at timestamptz,
  PRIMARY KEY (organization_id, id),
  FOREIGN KEY (organization_id, evaluation_run_id) REFERENCES evaluation_runs,
  FOREIGN KEY (organization_id, training_run_id) REFERENCES training_runs,
  FOREIGN KEY (organization_id, environment_version_id) REFERENCES environment_versions,
  FOREIGN KEY (organization_id, retry_of_id) REFERENCES evaluation_trials,
  FOREIGN KEY (organization_id, trajectory_artifact_id) REFERENCES artifacts,
  FOREIGN KEY (organization_id, session_artifact_id) REFERENCES artifacts,
  UNIQUE (organization_id, evaluation_run_id, task_index, attempt_no, retry_index),
  UNIQUE (organization_id, training_run_id, session_key),
  CHECK ((evaluation_run_id IS NULL) <> (training_run_id IS NULL))
);
CREATE INDEX evaluation_trials_newest ON evaluation_trials (organization_id, created_at DESC, id DESC);
CREATE INDEX evaluation_trials_of_version ON evaluation_trials (organization_id, environment_version_id, created_at DESC);
CREATE INDEX evaluation_trials_retries ON evaluation_trials (organization_id, retry_of_id);
CREATE INDEX evaluation_trials_trajectory ON evaluation_trials (organization_id, trajectory_artifact_id);
CREATE INDEX evaluation_trials_session ON evaluation_trials (organization_id, session_artifact_id);
CREATE INDEX evaluation_trials_failures ON evaluation_trials (organization_id, failure_category, created_at DESC)
  WHERE failure_category IS NOT NULL;

-- The scored record of one ended Trial, as GET /api/v1/rollouts shows it.
CREATE TABLE rollouts (
  organization_id uuid NOT NULL,
  id uuid NOT NULL DEFAULT gen_random_uuid(),
  trial_id uuid NOT NULL,
  environment_version_id uuid,
  evaluation_run_id uuid,
  training_run_id uuid,
  seed bigint NOT NULL,
  reward double precision CHECK (reward >= 0 AND reward <= 1),
  stages jsonb NOT NULL DEFAULT '{}',
  failure_category text,
  trajectory_artifact_id uuid,
  step_count integer NOT NULL DEFAULT 0,
  created_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (organization_id, id),
  UNIQUE (organization_id, trial_id),
  FOREIGN KEY (organization_id, trial_id) REFERENCES evaluation_trials,
  FOREIGN KEY (organization_id, environment_version_id) REFERENCES environment_versions,
  FOREIGN KEY (organization_id, evaluation_run_id) REFERENCES evaluation_runs,
  FOREIGN KEY (organization_id, training_run_id) REFERENCES training_runs,
  FOREIGN KEY (organization_id, trajectory_artifact_id) REFERENCES artifacts
);
CREATE INDEX rollouts_newest ON rollouts (organization_id, created_at DESC, id DESC);
CREATE INDEX rollouts_scored ON rollouts (organization_id, reward, created_at DESC, id DESC) WHERE reward IS NOT NULL;
CREATE INDEX rollouts_of_version ON rollouts (organization_id, environment_version_id, created_at DESC, id DESC);
CREATE INDEX rollouts_of_run ON rollouts (organization_id, evaluation_run_id, created_at DESC, id DESC);
CREATE INDEX rollouts_of_training_run ON rollouts (organization_id, training_run_id, created_at DESC, id DESC);
CREATE INDEX rollouts_trajectory ON rollouts (organization_id, trajectory_artifact_id);

CREATE TABLE audit_log (
  organization_id uuid NOT NULL REFERENCES organizations ON DELETE CASCADE,
  id bigint GENERATED ALWAYS AS IDENTITY,
  at timestamptz NOT NULL DEFAULT now(),
  user_id uuid,
  action text NOT NULL,
  subject text NOT NULL DEFAULT '',
  detail jsonb NOT NULL DEFAULT '{}',
  remote text NOT NULL DEFAULT '',
  PRIMARY KEY (organization_id, id)
);
CREATE INDEX audit_log_newest ON audit_log (organization_id, at DESC, id DESC);
