"""Reasoning and tool calls inside sampled text: total functions, text is the fallback."""
