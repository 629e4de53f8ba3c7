"""Messages to tokens and back: chat templates, reasoning and tool-call parsers."""
