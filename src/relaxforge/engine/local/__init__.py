"""The model itself, in a process of its own: continuous batching over a cache of slots, on CPU and CUDA."""
