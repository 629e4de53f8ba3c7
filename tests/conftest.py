"""Parts that every room's tests may use."""

pytest_plugins = ["postgres"]
