"""Conducts Groups of Sessions through Prepare, Runtime, Reward and Transfer within capacity."""
