"""The code and the paths that a job may name: `module:Class`, which a service imports, and what trials read."""

from __future__ import annotations

from collections.abc import Iterator

from search_spaces.parameters import Categorical, sectioned
from service.access.caller import Caller, Scope
from service.errors import CodeForbidden, InvalidInput
from service.settings import ENV_PREFIX, Settings
from service.specification.job import SamplerChoice, SamplerReference, WorkloadChoice
from service.specification.phases import fields_of
from service.specification.planning import JobPlan
from trainers.config import Json
from trainers.data.roots import DataRoots
from trainers.workload.user_workload import is_reference
from trainers.workloads.paths import problems_of_paths

SETTING = f"{ENV_PREFIX}ALLOW_CODE"


def refuse_user_code(workload: WorkloadChoice, sampler: SamplerChoice, settings: Settings, *, caller: Caller) -> None:
    """Refuses `module:Class` where it is not allowed; nothing of it has been imported then.

    Raises:
        InvalidInput: the service does not allow it; names the field.
        CodeForbidden: the service does, and the caller's token does not.
    """
    refuse_code_switched_off(workload, sampler, settings)
    for field, name in _named_code(workload, sampler):
        if not caller.may(Scope.CODE):
            needs = f"that needs the scope {Scope.CODE.value!r}"
            raise CodeForbidden(field, f"{name!r} is code that the service would run: {needs}")


def may_have_run(workload: WorkloadChoice, sampler: SamplerChoice, settings: Settings, *, caller: Caller) -> bool:
    """True if `refuse_user_code` would refuse nothing."""
    names_code = any(True for _ in _named_code(workload, sampler))
    return not names_code or (settings.allow_code and caller.may(Scope.CODE))


def refuse_code_switched_off(workload: WorkloadChoice, sampler: SamplerChoice, settings: Settings) -> None:
    """Refuses `module:Class` where the service allows it to nobody.

    Raises:
        InvalidInput: names the field and the setting.
    """
    for field, name in () if settings.allow_code else _named_code(workload, sampler):
        raise InvalidInput(
            field,
            f"{name!r} is code that the service would run, which is switched off here: `--allow-code` "
            f"or {SETTING}=true allows it to all who may submit jobs; a workload of an installed package "
            "with an entry point needs neither",
        )


def _named_code(workload: WorkloadChoice, sampler: SamplerChoice) -> Iterator[tuple[str, str]]:
    """Field and name of each `module:Class`."""
    if is_reference(workload.name):
        yield "workload.name", workload.name
    if isinstance(sampler.name, SamplerReference):
        yield "sampler.name", sampler.name.root


def check_paths(plan: JobPlan, data_roots: DataRoots, *, data_are_here: bool) -> None:
    """Checks that the paths that a job names may be read, and where its trials train that there is something to read.

    Args:
        data_are_here: whether trials train on this machine.

    Raises:
        InvalidInput: names the field and the path; of all that lie elsewhere it says the same.
    """
    given = list(_option_values(plan))
    for field, name, value in given:
        option = plan.workload.options.get(name)
        for path in () if option is None else option.paths_in(value):
            refusal = data_roots.refusal(path)
            if refusal is not None:
                raise InvalidInput(field, refusal)
    for field, name, value in given if data_are_here else ():
        for _, problem in problems_of_paths(plan.workload, {name: value}, data_roots):
            raise InvalidInput(field, problem)


def _option_values(plan: JobPlan) -> Iterator[tuple[str, str, Json]]:
    """Field, option and value of all that a job gives its workload, its search spaces included."""
    for name, value in plan.specification.workload.options.items():
        yield f"workload.options.{name}", name, value
    for side, fields in fields_of(plan.specification).items():
        space = plan.spaces[side]
        for name, fixed in space.fixed.items():
            section, own = sectioned(name)
            if section == "workload":
                yield f"{fields.space}.fixed['{name}']", own, fixed  # type: ignore[misc]  # JSON, as a space checks
        for index, parameter in enumerate(space.parameters):
            section, own = sectioned(parameter.name)
            if section == "workload" and isinstance(parameter, Categorical):
                for choice in parameter.choices:
                    yield f"{fields.space}.parameters[{index}].choices", own, choice
