"""RelaxForge: private agentic RL with exact tokens and kept evidence."""
