-- Training runs that send what they did.

-- Sessions so far: the next one gets the next trial_number.
ALTER TABLE training_runs ADD COLUMN session_count integer NOT NULL DEFAULT 0;

-- The Sessions of one run, newest first, and their outcomes counted without reading the rows.
CREATE INDEX evaluation_trials_of_training_run ON evaluation_trials
  (organization_id, training_run_id, created_at DESC, id DESC) INCLUDE (mode, status, failure_category)
  WHERE training_run_id IS NOT NULL;
