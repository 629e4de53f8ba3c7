"""The HTTP face of the model: Chat Completions, Responses and Messages in, the same dialect out."""
