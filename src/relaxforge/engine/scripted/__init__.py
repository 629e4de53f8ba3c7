"""An engine without a model: answers come from a file of rules, the same ones every time."""
