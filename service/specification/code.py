"""The section of a job that names the code which comes with it."""

from __future__ import annotations

import re
from typing import Annotated

import packaging.requirements
from pydantic import Field, StringConstraints, field_validator

from service.described_model import MaxEntries, StrictModel

MAX_VARIABLES = 64
"""Limit of a job's environment, by judgement: far more than code reads."""
SHA256_PATTERN = "^[0-9a-f]{64}$"

Sha256 = Annotated[str, StringConstraints(pattern=SHA256_PATTERN)]
MAX_REQUIREMENTS = 50
"""Packages, by judgement: far more than one workload imports."""

Requirement = Annotated[str, StringConstraints(min_length=1, max_length=200)]
VariableName = Annotated[str, StringConstraints(max_length=200)]
VariableValue = Annotated[str, StringConstraints(max_length=2000)]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_REFUSED_PREFIXES = ("DYLD_", "GLIBC_", "LD_", "MALLOC_", "PYTHON", "RAY_", "SHAMPOO_", "TUNE_")
_REFUSED = frozenset(
    {"CUDA_VISIBLE_DEVICES", "HOME", "LOGNAME", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS", "PATH", "PWD"}
    | {"GCONV_PATH", "LOCAL_RANK", "NODE_RANK", "RANK", "SHELL", "TEMP", "TMP", "TMPDIR", "USER", "VIRTUAL_ENV"}
    | {"WORLD_SIZE", "CUBLAS_WORKSPACE_CONFIG"}
)


def why_refused(name: str) -> str | None:
    """The reason why a job may not set an environment variable, for a person; None: it may."""
    if not _NAME.fullmatch(name):
        return "must be letters, digits and _, no digit first"
    if name.upper().startswith(_REFUSED_PREFIXES) or name.upper() in _REFUSED:
        return "is not a job's to set: the service, Ray, Python or the loader of programs reads it"
    return None


class CodeChoice(StrictModel):
    """Code that was sent with `POST /v1/code`, and the environment that it runs in."""

    sha256: Sha256 = Field(examples=["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"])
    """The digest that the service answered the upload with. The code belongs to the job's project, and is kept as long
    as a job names it."""
    requirements: list[Requirement] = Field(
        default_factory=list, max_length=MAX_REQUIREMENTS, examples=[["einops>=0.8"]]
    )
    """Packages that the code imports and that are not installed here, as pip names them, each with its versions. They
    are installed for this job only, from wheels of the index that the machines' pip uses, and installed packages keep
    their versions."""
    environment: Annotated[dict[VariableName, VariableValue], MaxEntries(MAX_VARIABLES)] = Field(
        default_factory=dict, examples=[{"HF_HUB_OFFLINE": "1"}]
    )
    """Environment variables of the processes that import the code, by name. Everyone who may read the job sees them:
    keep a secret where ranks can read it instead."""

    @field_validator("requirements")
    @classmethod
    def _may_be_installed(cls, requirements: list[str]) -> list[str]:
        for index, text in enumerate(requirements):
            try:
                found = packaging.requirements.Requirement(text)
            except packaging.requirements.InvalidRequirement as error:
                raise ValueError(
                    f"{text!a:.100} (number {index + 1}) is no requirement: {str(error).split(chr(10))[0]}"
                ) from error
            # pip takes what holds a slash, as `a===/../b` does, for a directory, builds it, and so runs what it holds.
            if found.url is not None or "/" in str(found.specifier):
                raise ValueError(f"{text!a:.100}: packages come from an index, not from an address or a directory")
        return requirements

    @field_validator("environment")
    @classmethod
    def _may_be_set(cls, environment: dict[str, str]) -> dict[str, str]:
        for name, value in environment.items():
            if why := why_refused(name):
                raise ValueError(f"{name!a:.100} {why}")
            if "\0" in value:
                raise ValueError(f"the value of {name} must not contain the NUL character")
        return environment
