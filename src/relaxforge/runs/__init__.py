"""Whole programs that compose the rooms: training, rollout, evaluation jobs and their worker."""
