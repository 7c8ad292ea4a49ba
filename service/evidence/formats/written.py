"""A recommended config in each of the formats in which it is taken away."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

import yaml
from pydantic import ConfigDict, Field, JsonValue

from service.described_model import DescribedModel
from service.evidence.formats.constructor import Constructor, unsaid_of_groups
from service.evidence.formats.distributed_shampoo import distributed_shampoo
from service.evidence.formats.family import Family, family_of
from service.evidence.formats.heavyball import heavyball
from service.evidence.formats.jax_script import jax_script
from service.evidence.formats.muon import muon_with_adamw, torch_muon
from service.evidence.formats.pytorch_optimizer import pytorch_optimizer
from service.evidence.formats.scalable_shampoo import scalable_shampoo
from service.evidence.formats.snippet import python_snippet, trial_snippet
from service.evidence.formats.torchrun import torchrun_line
from service.evidence.in_words.wording import optimizer_title
from service.evidence.parameter_groups import is_makeable
from service.evidence.recommended import PasteableConfig, RecommendedConfig


class Format(StrEnum):
    """The formats of a recommendation."""

    PYTHON = "python"
    JSON = "json"
    YAML = "yaml"
    TORCHRUN = "torchrun"
    DISTRIBUTED_SHAMPOO = "distributed-shampoo"
    HEAVYBALL = "heavyball"
    PYTORCH_OPTIMIZER = "pytorch-optimizer"
    SCALABLE_SHAMPOO = "scalable-shampoo"
    TORCH_MUON = "torch-muon"

    @property
    def words(self) -> str:
        """Its name for people."""
        return _TITLES[self]


_TITLES: Mapping[Format, str] = {
    Format.PYTHON: "Python to paste",
    Format.JSON: "JSON",
    Format.YAML: "YAML",
    Format.TORCHRUN: "The command that trains it again",
    Format.DISTRIBUTED_SHAMPOO: "Python with DistributedShampoo of facebookresearch/optimizers",
    Format.HEAVYBALL: "Python with heavyball",
    Format.PYTORCH_OPTIMIZER: "Python with pytorch_optimizer",
    Format.SCALABLE_SHAMPOO: "JAX with optax and google-research/scalable_shampoo",
    Format.TORCH_MUON: "Python with torch.optim.Muon",
}
_PACKAGES: Mapping[Format, Callable[[Family], Constructor | str]] = {
    Format.DISTRIBUTED_SHAMPOO: distributed_shampoo,
    Format.HEAVYBALL: heavyball,
    Format.PYTORCH_OPTIMIZER: pytorch_optimizer,
    Format.SCALABLE_SHAMPOO: scalable_shampoo,
    Format.TORCH_MUON: torch_muon,
}


_EXAMPLE: dict[str, JsonValue] = {
    "format": "torch-muon",
    "title": "Python with torch.optim.Muon",
    "text": None,
    "cannot_say": ["torch.optim.Muon orthogonalises the momentum: it has nothing of preconditioner='shampoo'"],
}


class Written(DescribedModel):
    """A recommended config in a format."""

    model_config = ConfigDict(frozen=True, defer_build=True, json_schema_extra={"examples": [_EXAMPLE]})

    format: Format
    """The format."""
    title: str
    """The name of the format for people."""
    text: str | None
    """The config in it; null: it cannot be said in this format, and `cannot_say` has the reason."""
    cannot_say: list[str] = Field(default=[])
    """Parts of the config that the text leaves out or says otherwise, a sentence each. Empty: whoever runs it takes the
    steps that were measured."""


def _made(form: Format, text: str | None, cannot_say: Sequence[str] = ()) -> Written:
    return Written(format=form, title=form.words, text=text, cannot_say=list(cannot_say))


def written(recommendation: RecommendedConfig, form: Format) -> Written:
    """The recommended config in a format, with all that cannot be said there."""
    if form in _PACKAGES:
        return _translated(recommendation, form)
    if form is Format.PYTHON:
        return _made(form, python_snippet(recommendation), _lacking(recommendation))
    if form is Format.TORCHRUN:
        return _command(recommendation)
    content = _content(recommendation)
    if form is Format.JSON:
        return _made(form, json.dumps(content, indent=2, ensure_ascii=False))
    return _made(form, yaml.safe_dump(content, sort_keys=False, allow_unicode=True).rstrip())


def _content(recommendation: RecommendedConfig) -> dict[str, Any]:
    config = PasteableConfig(**{name: getattr(recommendation, name) for name in PasteableConfig.model_fields})
    return {**config.model_dump(mode="json"), "torchrun": torchrun_line(recommendation)}


def _command(recommendation: RecommendedConfig) -> Written:
    form, line = Format.TORCHRUN, torchrun_line(recommendation)
    if line is None:
        reason = "the trial began from another one's checkpoint, with its hyperparameters"
        if recommendation.ranks is None:
            reason = "the recommendation is older than what trained its trials is kept"
        return _made(form, None, [reason])
    unsaid = []
    if recommendation.code_sha256 is not None:
        unsaid.append(f"the code that came with the job, {recommendation.code_sha256[:12]}: it must be on PYTHONPATH")
    return _made(form, line, unsaid)


def _translated(recommendation: RecommendedConfig, form: Format) -> Written:
    groups = recommendation.parameter_groups
    found: Constructor | str
    if recommendation.optimizer == "shampoo":
        found = _PACKAGES[form](family_of(recommendation.config))
    elif recommendation.optimizer == "muon" and form is Format.TORCH_MUON:
        found = muon_with_adamw(recommendation.config)
    else:
        found = f"the config is one of {optimizer_title(recommendation.optimizer)}, which the Python to paste has"
    if isinstance(found, str):
        return _made(form, None, [found])
    cannot_say = [*found.cannot_say, *_lacking(recommendation)]
    if is_makeable(groups):
        cannot_say += unsaid_of_groups([one.settings for one in groups])
    training = recommendation.training
    is_jax = form is Format.SCALABLE_SHAMPOO
    if is_jax and groups:
        cannot_say.append("groups of parameters with settings of their own: optax.multi_transform makes these")
    if training.get("averaging") is not None:
        cannot_say.append(f"the average of the weights, {training['averaging']['method']!r}: the script keeps none")
    said = f"{optimizer_title(recommendation.optimizer)} for {recommendation.workload}, as {form.words}"
    header = [said, *(f"Cannot be said here: {one}." for one in cannot_say)]
    command = torchrun_line(recommendation)
    if is_jax:
        text = jax_script(recommendation, found, lr=family_of(recommendation.config).lr, header=header, command=command)
    else:
        text = trial_snippet(recommendation, header=header, command=command, constructor=found)
    return _made(form, text, cannot_say)


def _lacking(config: PasteableConfig) -> list[str]:
    """Of parameters with settings of their own that no rule finds."""
    groups = config.parameter_groups
    return [] if is_makeable(groups) else [f"settings that parameters had of their own: {one.words}" for one in groups]
