"""Parts that every room's tests may use."""

from hypothesis import HealthCheck, settings

pytest_plugins = ["postgres"]

# A busy machine is no failure of what is tested.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
