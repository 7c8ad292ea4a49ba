"""Whose code runs: the names `module:Class` in a job, of its workload and its sampler, and who may use them."""

from __future__ import annotations

from collections.abc import Collection

from service.errors import CodeForbidden, InvalidInput
from service.settings import ENV_PREFIX, Settings
from service.specification.job import SamplerChoice, SamplerReference, WorkloadChoice
from trainers.workload.user_workload import is_reference

CODE_SCOPE = "code"
"""The scope that a token needs for such names."""
SETTING = f"{ENV_PREFIX}ALLOW_CODE"


def may_name_code(settings: Settings, caller_scopes: Collection[str] | None) -> bool:
    """True if a job may name code: the service allows it, and so do the caller's scopes.

    Args:
        caller_scopes: of the token that came with the request; None: no tokens are in force.
    """
    return settings.allow_code and (caller_scopes is None or CODE_SCOPE in caller_scopes)


def refuse_user_code(
    workload: WorkloadChoice,
    sampler: SamplerChoice,
    settings: Settings,
    *,
    caller_scopes: Collection[str] | None = None,
) -> None:
    """Refuses `module:Class` where it is not allowed; nothing of it has been imported then.

    Args:
        caller_scopes: as of `may_name_code`.

    Raises:
        InvalidInput: the service does not allow it; names the field.
        CodeForbidden: the service does, and the caller's token does not.
    """
    named = {}
    if is_reference(workload.name):
        named["workload.name"] = workload.name
    if isinstance(sampler.name, SamplerReference):
        named["sampler.name"] = sampler.name.root
    if not named or may_name_code(settings, caller_scopes):
        return
    field, name = next(iter(named.items()))
    if settings.allow_code:
        raise CodeForbidden(field, f"{name!r} is code that the service would run: that needs the scope {CODE_SCOPE!r}")
    raise InvalidInput(
        field,
        f"{name!r} is code that the service would run, which is switched off here: `shampoo-tuner serve --allow-code` "
        f"or {SETTING}=true allows it to all who may submit jobs; a workload of an installed package with an entry "
        "point needs neither",
    )
