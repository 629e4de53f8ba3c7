"""Kept attempts as files for others: trajectories, NDJSON by kind, ATIF, trainer formats; private by default."""
