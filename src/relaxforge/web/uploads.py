"""What somebody uploads as an environment version, looked at before it is kept for good."""

from __future__ import annotations

import asyncio

from relaxforge.core.errors import BundleError
from relaxforge.environments.bundle import Bundle, open_bundle
from relaxforge.rollout.trial_tasks import tasks_of
from relaxforge.web.errors import Problem


async def read_package(packed: bytes) -> Bundle:
    """The bundle in a tar.gz, its tasks included, believed in nothing. Errors: ``Problem`` 422 with what is wrong."""
    try:
        return await asyncio.to_thread(_checked, packed)
    except BundleError as error:
        message = str(error)
        raise Problem(422, "bundle", message, errors=[{"path": "body.bundle", "message": message}]) from None


def _checked(packed: bytes) -> Bundle:
    bundle = open_bundle(packed)
    tasks_of(bundle)
    return bundle
