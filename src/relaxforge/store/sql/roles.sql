-- The four roles and the empty schema. Runs as the administrator (a superuser, or a role that may create roles and
-- schemas), again and again: what exists stays. Passwords are set by store/admin.py.

DO $$ BEGIN CREATE ROLE relaxforge_owner NOLOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;
DO $$ BEGIN CREATE ROLE relaxforge_definer NOLOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;
DO $$ BEGIN CREATE ROLE relaxforge_app LOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;
DO $$ BEGIN CREATE ROLE relaxforge_worker LOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;

-- The owner gives functions to the definer; an administrator who is no superuser acts as the owner.
DO $$ BEGIN
  IF NOT pg_has_role('relaxforge_owner', 'relaxforge_definer', 'MEMBER') THEN
    GRANT relaxforge_definer TO relaxforge_owner;
  END IF;
  IF NOT pg_has_role(current_user, 'relaxforge_owner', 'USAGE') THEN
    GRANT relaxforge_owner TO CURRENT_USER;
  END IF;
END $$;

CREATE SCHEMA IF NOT EXISTS relaxforge AUTHORIZATION relaxforge_owner;
