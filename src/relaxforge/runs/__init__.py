"""Whole programs that compose the rooms: training and rollout."""
