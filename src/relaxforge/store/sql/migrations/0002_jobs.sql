-- Who works on what.

-- Results that came from a worker whose lease was gone; they are dropped, and counted here.
ALTER TABLE jobs ADD COLUMN late_results integer NOT NULL DEFAULT 0;

CREATE POLICY definer ON jobs FOR ALL TO relaxforge_definer USING (true) WITH CHECK (true);
GRANT SELECT, UPDATE ON jobs TO relaxforge_definer;

-- Claim the next job: queued and due, or running under a lease that ran out. NULL as organization: of any.
-- Order: priority, then the organization with the fewest jobs under a live lease, then the one that waits longest.
-- No organization gets more than its most_running_jobs. The clock is this server's, never a worker's.
-- The caller learns whose job it is and under which token, nothing else; the rest it reads as that organization.
-- A job whose attempts are used up is handed out as well (attempt > max_attempts): its claimer closes it.
CREATE FUNCTION claim_job(worker text, lease_s double precision, only_organization uuid)
RETURNS TABLE (claimed_job_id uuid, claimed_organization_id uuid, claimed_lease_token uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = relaxforge, pg_temp AS $$
BEGIN
  -- One claim at a time, so that two of them cannot both take an organization's last place.
  PERFORM pg_advisory_xact_lock(hashtextextended('relaxforge.claim_job', 0));
  RETURN QUERY
  WITH live AS (
    SELECT organization_id, count(*) AS running FROM jobs
    WHERE state = 'running' AND lease_until >= clock_timestamp() GROUP BY organization_id
  ), next AS (
    SELECT jobs.organization_id, jobs.id
    FROM jobs
    JOIN organizations ON organizations.id = jobs.organization_id
    LEFT JOIN live ON live.organization_id = jobs.organization_id
    WHERE (only_organization IS NULL OR jobs.organization_id = only_organization)
      AND ((jobs.state = 'queued' AND jobs.run_at <= clock_timestamp())
        OR (jobs.state = 'running' AND jobs.lease_until < clock_timestamp()))
      AND coalesce(live.running, 0) < organizations.most_running_jobs
    ORDER BY jobs.priority DESC, coalesce(live.running, 0), jobs.run_at, jobs.id
    LIMIT 1
    FOR UPDATE OF jobs SKIP LOCKED
  )
  UPDATE jobs SET state = 'running', attempt = attempt + 1, lease_token = gen_random_uuid(), worker_id = worker,
    lease_until = clock_timestamp() + make_interval(secs => lease_s)
  FROM next WHERE jobs.organization_id = next.organization_id AND jobs.id = next.id
  RETURNING jobs.id, jobs.organization_id, jobs.lease_token;
END $$;
GRANT EXECUTE ON FUNCTION claim_job(text, double precision, uuid) TO relaxforge_worker;
ALTER FUNCTION claim_job(text, double precision, uuid) OWNER TO relaxforge_definer;
