"""The Postgres control plane: every query runs inside one organization's scope, behind row-level security."""
