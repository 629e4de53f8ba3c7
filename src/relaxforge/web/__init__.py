"""The organization's HTTP API and workspace pages."""
