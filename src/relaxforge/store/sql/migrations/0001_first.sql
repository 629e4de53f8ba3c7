-- The first schema. Runs as relaxforge_owner with search_path relaxforge; the roles and the empty schema exist already
-- (sql/roles.sql).
--
-- Every table of an organization has organization_id in its primary key and in every foreign key, so that no key can
-- reach into another organization, row-level security on and forced, and one policy for the application's roles.
-- Nobody but the owner may change the schema, and the owner cannot log in.

ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
GRANT USAGE ON SCHEMA relaxforge TO relaxforge_app, relaxforge_worker, relaxforge_definer;
GRANT CREATE ON SCHEMA relaxforge TO relaxforge_definer;

-- The organization and the user of the current transaction. NULL when unset, which matches nothing.
CREATE FUNCTION current_organization() RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE
  AS $$ SELECT nullif(current_setting('app.organization_id', true), '')::uuid $$;
CREATE FUNCTION current_person() RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE
  AS $$ SELECT nullif(current_setting('app.user_id', true), '')::uuid $$;
GRANT EXECUTE ON FUNCTION current_organization(), current_person()
  TO relaxforge_app, relaxforge_worker, relaxforge_definer;

-- Row-level security for a table with organization_id. The sub-select is evaluated once per query, and the column stays
-- bare, so that indexes that begin with it are used.
CREATE FUNCTION protect(table_name regclass, VARIADIC roles name[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  granted text := (SELECT string_agg(quote_ident(role), ', ') FROM unnest(roles) AS role);
BEGIN
  EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', table_name);
  EXECUTE format('CREATE POLICY organization ON %s FOR ALL TO %s '
    'USING (organization_id = (SELECT relaxforge.current_organization())) '
    'WITH CHECK (organization_id = (SELECT relaxforge.current_organization()))', table_name, granted);
END $$;

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
CREATE TRIGGER environment_versions_kept BEFORE TRUNCATE ON environment_versions
  FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

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
CREATE INDEX rollouts_pairs ON rollouts (organization_id, environment_version_id, reward, created_at, id)
  WHERE reward IS NOT NULL;
CREATE INDEX rollouts_of_version ON rollouts (organization_id, environment_version_id, created_at DESC, id DESC);
CREATE INDEX rollouts_of_run ON rollouts (organization_id, evaluation_run_id, created_at DESC, id DESC);
CREATE INDEX rollouts_of_training_run ON rollouts (organization_id, training_run_id, created_at DESC, id DESC);
CREATE INDEX rollouts_trajectory ON rollouts (organization_id, trajectory_artifact_id);

CREATE TABLE audit_log (
  organization_id uuid NOT NULL REFERENCES organizations ON DELETE CASCADE,
  id uuid NOT NULL DEFAULT gen_random_uuid(),
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  user_id uuid,
  action text NOT NULL,
  subject text NOT NULL DEFAULT '',
  detail jsonb NOT NULL DEFAULT '{}',
  remote text NOT NULL DEFAULT '',
  PRIMARY KEY (organization_id, id)
);
CREATE INDEX audit_log_newest ON audit_log (organization_id, created_at DESC, id DESC);

-- Who may do what. Nobody gets TRUNCATE, and nobody may change or delete what is evidence.

SELECT protect(name, 'relaxforge_app') FROM unnest(ARRAY['memberships', 'browser_sessions', 'api_tokens', 'training_runs',
  'training_steps', 'audit_log']::regclass[]) AS name;
SELECT protect(name, 'relaxforge_app', 'relaxforge_worker') FROM unnest(ARRAY['environments', 'environment_secrets',
  'artifacts', 'environment_versions', 'evaluator_configurations', 'evaluation_runs', 'jobs', 'evaluation_trials',
  'rollouts']::regclass[]) AS name;

ALTER TABLE organizations ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY organization ON organizations FOR ALL TO relaxforge_app, relaxforge_worker
  USING (id = (SELECT current_organization())) WITH CHECK (id = (SELECT current_organization()));
ALTER TABLE users ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY organization ON users FOR ALL TO relaxforge_app
  USING (id IN (SELECT user_id FROM memberships WHERE organization_id = (SELECT current_organization())))
  WITH CHECK (id IN (SELECT user_id FROM memberships WHERE organization_id = (SELECT current_organization())));

GRANT SELECT, UPDATE (name, most_running_jobs) ON organizations TO relaxforge_app;
GRANT SELECT (id, email, name, must_change_password, created_at, disabled_at) ON users TO relaxforge_app;
GRANT SELECT, INSERT, DELETE, UPDATE (role) ON memberships TO relaxforge_app;
GRANT SELECT, INSERT, DELETE ON browser_sessions TO relaxforge_app;
GRANT SELECT, INSERT, UPDATE (revoked_at) ON api_tokens TO relaxforge_app;
GRANT SELECT, INSERT, UPDATE (name, description) ON environments TO relaxforge_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON environment_secrets TO relaxforge_app;
GRANT SELECT, INSERT ON artifacts, environment_versions, evaluator_configurations, audit_log TO relaxforge_app;
GRANT SELECT, INSERT, UPDATE ON evaluation_runs, jobs, training_runs, training_steps, evaluation_trials, rollouts
  TO relaxforge_app;

GRANT SELECT ON organizations, environments, environment_secrets, environment_versions, evaluator_configurations
  TO relaxforge_worker;
GRANT SELECT, INSERT ON artifacts, rollouts TO relaxforge_worker;
GRANT SELECT, UPDATE ON evaluation_runs, jobs TO relaxforge_worker;
GRANT SELECT, INSERT, UPDATE ON evaluation_trials TO relaxforge_worker;

-- What has to look across organizations, before it is known whose turn it is. These functions belong to
-- relaxforge_definer, whose own policies and privileges reach these tables only.

CREATE POLICY definer ON organizations FOR ALL TO relaxforge_definer USING (true) WITH CHECK (true);
CREATE POLICY definer ON users FOR ALL TO relaxforge_definer USING (true) WITH CHECK (true);
CREATE POLICY definer ON memberships FOR ALL TO relaxforge_definer USING (true) WITH CHECK (true);
CREATE POLICY definer ON browser_sessions FOR ALL TO relaxforge_definer USING (true) WITH CHECK (true);
CREATE POLICY definer ON api_tokens FOR ALL TO relaxforge_definer USING (true) WITH CHECK (true);
GRANT SELECT, INSERT ON organizations, memberships TO relaxforge_definer;
GRANT SELECT, INSERT, UPDATE (password_hash, must_change_password) ON users TO relaxforge_definer;
GRANT SELECT, DELETE, UPDATE (last_seen_at, expires_at) ON browser_sessions TO relaxforge_definer;
GRANT SELECT, UPDATE (last_used_at) ON api_tokens TO relaxforge_definer;

CREATE FUNCTION person_by_email(wanted text)
RETURNS TABLE (user_id uuid, email text, name text, password_hash text, must_change_password boolean, disabled boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = relaxforge, pg_temp AS $$
  SELECT id, email, name, password_hash, must_change_password, disabled_at IS NOT NULL FROM users
  WHERE email = lower(wanted)
$$;

CREATE FUNCTION organizations_of(person uuid) RETURNS TABLE (organization_id uuid, name text, role text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = relaxforge, pg_temp AS $$
  SELECT o.id, o.name, m.role FROM memberships m JOIN organizations o ON o.id = m.organization_id
  WHERE m.user_id = person ORDER BY o.name, o.id
$$;

-- The browser session of a cookie, whose end moves with its use (written at most once a minute), but never beyond longest.
CREATE FUNCTION browser_session(hash bytea, idle interval, longest interval)
RETURNS TABLE (user_id uuid, organization_id uuid, role text, email text, name text, organization_name text,
  must_change_password boolean, csrf_token text, expires_at timestamptz)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = relaxforge, pg_temp AS $$
  UPDATE browser_sessions s
  SET last_seen_at = now(), expires_at = greatest(s.expires_at, least(now() + idle, s.created_at + longest))
  WHERE s.token_hash = hash AND s.expires_at > now() AND s.last_seen_at < now() - interval '1 minute';
  SELECT s.user_id, s.organization_id, m.role, u.email, u.name, o.name, u.must_change_password, s.csrf_token, s.expires_at
  FROM browser_sessions s
  JOIN memberships m ON m.organization_id = s.organization_id AND m.user_id = s.user_id
  JOIN users u ON u.id = s.user_id
  JOIN organizations o ON o.id = s.organization_id
  WHERE s.token_hash = hash AND s.expires_at > now() AND u.disabled_at IS NULL
$$;

-- Whoever holds the cookie may end its session.
CREATE FUNCTION end_browser_session(hash bytea) RETURNS boolean
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = relaxforge, pg_temp AS $$
  WITH ended AS (DELETE FROM browser_sessions WHERE token_hash = hash RETURNING token_hash)
  SELECT EXISTS (SELECT FROM ended)
$$;

CREATE FUNCTION api_token(hash bytea)
RETURNS TABLE (id uuid, user_id uuid, organization_id uuid, role text, email text, name text, organization_name text,
  scopes text[], expires_at timestamptz)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = relaxforge, pg_temp AS $$
  UPDATE api_tokens t SET last_used_at = now()
  WHERE t.token_hash = hash AND t.expires_at > now() AND t.revoked_at IS NULL
    AND (t.last_used_at IS NULL OR t.last_used_at < now() - interval '1 minute');
  SELECT t.id, t.user_id, t.organization_id, m.role, u.email, u.name, o.name, t.scopes, t.expires_at
  FROM api_tokens t
  JOIN memberships m ON m.organization_id = t.organization_id AND m.user_id = t.user_id
  JOIN users u ON u.id = t.user_id
  JOIN organizations o ON o.id = t.organization_id
  WHERE t.token_hash = hash AND t.expires_at > now() AND t.revoked_at IS NULL AND u.disabled_at IS NULL
$$;

-- A person by e-mail; one who exists already keeps their name and password.
CREATE FUNCTION find_or_create_person(email text, name text, password_hash text, must_change_password boolean)
RETURNS TABLE (user_id uuid, created boolean)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = relaxforge, pg_temp AS $$
  WITH made AS (
    INSERT INTO users (email, name, password_hash, must_change_password) VALUES (lower($1), $2, $3, $4)
    ON CONFLICT (email) DO NOTHING RETURNING id
  )
  SELECT id, true FROM made
  UNION ALL
  SELECT u.id, false FROM users u WHERE u.email = lower($1) AND NOT EXISTS (SELECT FROM made)
$$;

-- The current person changes their own password; every browser of theirs is signed out.
CREATE FUNCTION change_own_password(new_hash text) RETURNS boolean
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = relaxforge, pg_temp AS $$
  DELETE FROM browser_sessions WHERE user_id = current_person();
  WITH changed AS (
    UPDATE users SET password_hash = new_hash, must_change_password = false WHERE id = current_person() RETURNING id
  )
  SELECT EXISTS (SELECT FROM changed)
$$;

GRANT EXECUTE ON FUNCTION person_by_email, organizations_of, browser_session, end_browser_session, api_token,
  find_or_create_person, change_own_password TO relaxforge_app;

-- Only for the administrator's connection: neither the application nor a worker may execute these.
CREATE FUNCTION create_organization(name text, owner_id uuid) RETURNS uuid
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = relaxforge, pg_temp AS $$
  WITH made AS (INSERT INTO organizations (name) VALUES ($1) RETURNING id),
    joined AS (INSERT INTO memberships (organization_id, user_id, role) SELECT id, owner_id, 'owner' FROM made)
  SELECT id FROM made
$$;

-- A person who lost their password gets one for once; whoever is signed in as them is signed out.
CREATE FUNCTION reset_password(wanted text, new_hash text) RETURNS uuid
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = relaxforge, pg_temp AS $$
  DELETE FROM browser_sessions WHERE user_id = (SELECT id FROM users WHERE email = lower(wanted));
  UPDATE users SET password_hash = new_hash, must_change_password = true WHERE email = lower(wanted) RETURNING id
$$;

CREATE FUNCTION all_organizations() RETURNS TABLE (id uuid, name text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = relaxforge, pg_temp AS $$
  SELECT id, name FROM organizations ORDER BY name, id
$$;

ALTER FUNCTION person_by_email OWNER TO relaxforge_definer;
ALTER FUNCTION organizations_of OWNER TO relaxforge_definer;
ALTER FUNCTION browser_session OWNER TO relaxforge_definer;
ALTER FUNCTION end_browser_session OWNER TO relaxforge_definer;
ALTER FUNCTION api_token OWNER TO relaxforge_definer;
ALTER FUNCTION find_or_create_person OWNER TO relaxforge_definer;
ALTER FUNCTION change_own_password OWNER TO relaxforge_definer;
ALTER FUNCTION create_organization OWNER TO relaxforge_definer;
ALTER FUNCTION reset_password OWNER TO relaxforge_definer;
ALTER FUNCTION all_organizations OWNER TO relaxforge_definer;
