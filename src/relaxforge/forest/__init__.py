"""SessionForest: every committed conversation of one Session as token deltas; finds prefixes, yields lineages."""
