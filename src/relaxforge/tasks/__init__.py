"""Where work comes from: a dataset row becomes one Session input."""
