"""A model name becomes a local Hugging Face folder: packaged, random, or named."""
