"""Reads configuration, builds the objects, starts a run; nobody imports it."""
