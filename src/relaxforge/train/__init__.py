"""Samples in, new weights out: batches, losses, optimiser, checkpoints."""
