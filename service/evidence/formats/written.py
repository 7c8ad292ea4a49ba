"""A config, tuned or not, in each of the formats in which it is taken away."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
from service.evidence.formats.snippet import evidence_header, trial_snippet
from service.evidence.formats.torchrun import torchrun_line
from service.evidence.in_words.wording import optimizer_title
from service.evidence.parameter_groups import is_makeable
from service.evidence.recommended import PasteableConfig, RecommendedConfig


class Format(StrEnum):
    """The formats of a config."""

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
        """The format's name for people."""
        return _TITLES[self]


_TITLES: Mapping[Format, str] = {
    Format.PYTHON: "Python to paste",
    Format.JSON: "JSON",
    Format.YAML: "YAML",
    Format.TORCHRUN: "A command that trains it",
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


@dataclass(frozen=True, slots=True)
class TakenAway:
    """A config with what is told of it wherever it is written."""

    config: PasteableConfig
    title: str
    """The optimizer and the model that it is for, as a person says it."""
    header: Sequence[str]
    """The comment above our own Python, in lines."""
    command: str | None
    """A line for a shell that trains it; None: there is none, and `unsaid_of_command` has the reason."""
    unsaid_of_command: Sequence[str] = ()
    """Sentences on what the line leaves to whoever runs it."""
    beside: Sequence[str] = ()
    """Lines of the comment above other packages' Python, between its title and what cannot be said there."""


class Written(DescribedModel):
    """A config in a format."""

    model_config = ConfigDict(frozen=True, defer_build=True, json_schema_extra={"examples": [_EXAMPLE]})

    format: Format
    """The format."""
    title: str
    """The name of the format for people."""
    text: str | None
    """The config in it; null: this format cannot express it, and `cannot_say` has the reason."""
    cannot_say: list[str] = Field(default=[])
    """Parts of the config that the text leaves out or changes, a sentence each. Empty: it takes the steps that were
    measured."""


def _made(form: Format, text: str | None, cannot_say: Sequence[str] = ()) -> Written:
    return Written(format=form, title=form.words, text=text, cannot_say=list(cannot_say))


def written(recommendation: RecommendedConfig, form: Format) -> Written:
    """The recommended config in a format, with all that cannot be said there."""
    return written_of(_recommended(recommendation), form)


def written_of(taken: TakenAway, form: Format) -> Written:
    """A config in a format, with all that cannot be said there."""
    if form in _PACKAGES:
        return _translated(taken, form)
    if form is Format.PYTHON:
        text = trial_snippet(taken.config, header=taken.header, command=taken.command)
        return _made(form, text, _lacking(taken.config))
    if form is Format.TORCHRUN:
        return _made(form, taken.command, taken.unsaid_of_command)
    content = _content(taken)
    if form is Format.JSON:
        return _made(form, json.dumps(content, indent=2, ensure_ascii=False))
    return _made(form, yaml.safe_dump(content, sort_keys=False, allow_unicode=True).rstrip())


def _recommended(recommendation: RecommendedConfig) -> TakenAway:
    title = f"{optimizer_title(recommendation.optimizer)} for {recommendation.workload}"
    line, unsaid = torchrun_line(recommendation), []
    if line is None:
        unsaid = ["the trial began from another one's checkpoint, with its hyperparameters"]
        if recommendation.ranks is None:
            unsaid = ["the recommendation is older than what trained its trials is kept"]
    elif recommendation.code_sha256 is not None:
        unsaid = [f"the code that came with the job, {recommendation.code_sha256[:12]}: it must be on PYTHONPATH"]
    return TakenAway(recommendation, title, evidence_header(recommendation), line, unsaid)


def _content(taken: TakenAway) -> dict[str, Any]:
    config = PasteableConfig(**{name: getattr(taken.config, name) for name in PasteableConfig.model_fields})
    # Null: no workload's, which a model that was never tuned may be.
    return {**config.model_dump(mode="json"), "workload": config.workload or None, "torchrun": taken.command}


def _translated(taken: TakenAway, form: Format) -> Written:
    config = taken.config
    groups = config.parameter_groups
    found: Constructor | str
    if config.optimizer == "shampoo":
        found = _PACKAGES[form](family_of(config.config))
    elif config.optimizer == "muon" and form is Format.TORCH_MUON:
        found = muon_with_adamw(config.config)
    else:
        found = f"the config is one of {optimizer_title(config.optimizer)}, which the Python to paste has"
    if isinstance(found, str):
        return _made(form, None, [found])
    cannot_say = [*found.cannot_say, *_lacking(config)]
    if is_makeable(groups):
        cannot_say += unsaid_of_groups([one.settings for one in groups])
    training = config.training
    is_jax = form is Format.SCALABLE_SHAMPOO
    if is_jax and groups:
        cannot_say.append("groups of parameters with settings of their own: optax.multi_transform makes these")
    if training.get("averaging") is not None:
        cannot_say.append(f"the average of the weights, {training['averaging']['method']!r}: the script keeps none")
    said = f"{taken.title}, as {form.words}"
    header = [said, *taken.beside, *(f"Cannot be said here: {one}." for one in cannot_say)]
    if is_jax:
        text = jax_script(config, found, lr=family_of(config.config).lr, header=header, command=taken.command)
    else:
        text = trial_snippet(config, header=header, command=taken.command, constructor=found)
    return _made(form, text, cannot_say)


def _lacking(config: PasteableConfig) -> list[str]:
    """Words for the settings of parameters' own that no rule finds; empty: there are none."""
    groups = config.parameter_groups
    return [] if is_makeable(groups) else [f"settings that parameters had of their own: {one.words}" for one in groups]
