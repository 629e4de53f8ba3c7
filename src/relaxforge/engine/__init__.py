"""Token-in, token-out generation with abort, resume and new weights."""
