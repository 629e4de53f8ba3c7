"""The HTTP face of the model: Chat Completions in, the same dialect out."""
