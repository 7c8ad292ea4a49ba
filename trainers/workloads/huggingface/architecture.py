"""Architectures that `transformers` builds: a config, checked, and weights, random or from a local directory.

Nothing is fetched: the hub is switched off in this process before the library loads. Nothing is executed that comes
with a model: directories whose config names code are refused, and weights are read from safetensors files alone.
"""

from __future__ import annotations

import copy
import dataclasses
import difflib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Literal, TypeAlias, cast, get_args

import torch
from torch import Tensor, nn

from trainers.installation.extras import optional_library
from trainers.torch_internals import NOT_WITHOUT_DATA, FakeTensorMode
from trainers.workloads.huggingface.model_directory import model_directory, read_config
from trainers.workloads.options import MAX_LAYERS, OptionRefused, one_of

Task: TypeAlias = Literal["causal-lm", "image-classification", "sequence-classification"]
Weights: TypeAlias = Literal["random", "pretrained"]

_AUTO_CLASSES: Mapping[Task, tuple[str, str]] = {
    "causal-lm": ("AutoModelForCausalLM", "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"),
    "image-classification": ("AutoModelForImageClassification", "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES"),
    "sequence-classification": (
        "AutoModelForSequenceClassification",
        "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
    ),
}
"""The library's name of each task's models, and of the table of those there are."""

_SET_HERE = frozenset(
    {
        "architectures",
        "dtype",
        "id2label",
        "is_decoder",
        "label2id",
        "num_labels",
        "output_attentions",
        "output_hidden_states",
        "problem_type",
        "return_dict",
        "transformers_version",
        "use_cache",
    }
)
"""Fields of every config that follow from the task and the data."""

_BUILD_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""The errors of the library's models where a config is impossible; they check few fields by themselves."""

_PROBE_LENGTH = 4
"""Tokens of the probe for attention to later ones: the shortest with some that no change may reach."""
_PROBE_TOLERANCE = 1e-4
"""Relative to the largest logit. Rounding differs by about 1e-6; attention to one token too many, by 1e-3 and more,
also in a model that is next to zero at its start."""


class Architecture:
    """A model that can be built any number of times.

    Args:
        task: what the model is to do.
        architecture: its `model_type`, e.g. "llama"; None with `model_path`.
        config: fields of its config, by the names of its config class, instead of that class's defaults or the
            values in `model_path`.
        model_path: a directory with `config.json` and, for pretrained weights, safetensors files.
        weights: `random` draws them from torch's global generator; `pretrained` reads them from `model_path`, and
            draws only what that lacks outside the base model, e.g. the head of another task.
        required: fields that the data determine, e.g. `num_labels`.
        where_known: fields that are set if the config has them, e.g. `image_size`.
        where_open: fields that are set if neither `config` nor `model_path` has a value for them.
        num_tokens: size of the tokenizer's vocabulary, for text. Without another wish the model's is as large; it
            must not be smaller.
        inputs: gives the arguments of the model's `forward` for two examples, from the config, as tensors on the
            device that is torch's default then.

    Raises:
        ValueError: the library knows no such architecture, or not for this task; the config has unknown fields or
            impossible values; the model does not take such inputs; the directory lacks files or names code of its own;
            `transformers` is not installed.
    """

    def __init__(
        self,
        *,
        task: Task,
        architecture: str | None,
        config: Mapping[str, Any],
        model_path: str | None,
        weights: Weights,
        required: Mapping[str, Any],
        inputs: Callable[[Any], Mapping[str, Tensor]],
        where_known: Mapping[str, Any] | None = None,
        where_open: Mapping[str, Any] | None = None,
        num_tokens: int | None = None,
    ) -> None:
        if not isinstance(config, Mapping):
            raise OptionRefused("config", f"must be an object, got {config!r}")
        one_of("weights", weights, get_args(Weights))
        if (architecture is None) == (model_path is None):
            raise ValueError(
                f"either architecture or model_path must be given, got {architecture!r} and {model_path!r}"
            )
        if weights == "pretrained" and model_path is None:
            raise ValueError(f"model_path must be given with weights {weights!r}, got None")
        self.task = task
        self._weights = weights
        self._directory = (
            None if model_path is None else model_directory(model_path, needs_weights=weights == "pretrained")
        )
        from_file = {} if self._directory is None else read_config(self._directory)
        name = architecture if self._directory is None else from_file.get("model_type")
        with quiet():
            config_class = _config_class(name, task)
            _check_fields(config_class, config, "config")
            names = config_class.attribute_map
            fields = _merged(from_file, {names.get(field, field): value for field, value in config.items()})
            known = _fields(config_class)
            fields |= {"use_cache": False, **required}
            fields |= {field: value for field, value in (where_known or {}).items() if field in known}
            fields |= {field: value for field, value in (where_open or {}).items() if fields.get(field) is None}
            if task == "causal-lm" and "is_decoder" in known:
                fields["is_decoder"] = True  # else such models see the tokens that they are to predict
            if num_tokens is not None:
                fields |= _token_fields(config_class, fields, num_tokens)
            with _explained(f"transformers refuses this config of {name}"):
                self.config = config_class.from_dict(copy.deepcopy(fields))
                """The library's config object."""
                self._unused = _unused_parameters(_probe(self._auto_class, self.config, fields, inputs))

    def build(self) -> nn.Module:
        """The model in float32 on the CPU, or on the meta device where that is torch's default; its `forward` gives an
        output with `logits`.

        Parameters that do not take part in the task (a pooler whose output nothing reads) are frozen: they get no
        gradient, which ranks that exchange gradients would wait for.

        Raises:
            ValueError: the weights do not fit the config, or a language model sees tokens that it is to predict.
        """
        # On the meta device there are no weights to read, and no outputs to compare.
        has_values = torch.get_default_device().type != "meta"
        with quiet():
            model = self._pretrained() if self._weights == "pretrained" and has_values else self._random()
        if self.task == "causal-lm" and has_values:
            _check_causal(model, self.config.model_type)
        for name in self._unused:
            model.get_parameter(name).requires_grad_(False)
        return model.train()

    @property
    def _auto_class(self) -> Any:
        return getattr(transformers(), _AUTO_CLASSES[self.task][0])

    def _random(self) -> nn.Module:
        # Given a copy, because models write into their config.
        return cast("nn.Module", self._auto_class.from_config(copy.deepcopy(self.config), dtype=torch.float32))

    def _pretrained(self) -> nn.Module:
        with _explained(f"model_path {self._directory}: the weights cannot be read"):
            model, found = self._auto_class.from_pretrained(
                str(self._directory),
                config=copy.deepcopy(self.config),
                dtype=torch.float32,
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,  # reported, and refused below if it is more than the head
                output_loading_info=True,
            )
        wrong = {str(name) for name in found["missing_keys"]} | {str(key[0]) for key in found["mismatched_keys"]}
        # A pooler exists only for some tasks, so checkpoints of others lack it.
        wrong = {name for name in wrong if name.startswith(f"{model.base_model_prefix}.") and ".pooler." not in name}
        if wrong:
            raise ValueError(
                f"model_path {self._directory}: {len(wrong)} weights of {type(model).__name__} are missing or have "
                f"another shape, e.g. {min(wrong)}; does the config fit them?"
            )
        return cast("nn.Module", model)


@dataclasses.dataclass(frozen=True, slots=True)
class _Probe:
    """A model and its inputs without their values; equal to those of the same class, fields and shapes."""

    auto_class: Any
    fields: str
    """Fields of the config, in JSON."""
    shapes: tuple[tuple[str, torch.Size, torch.dtype], ...]
    config: Any = dataclasses.field(compare=False)
    inputs: Callable[[Any], Mapping[str, Tensor]] = dataclasses.field(compare=False)


def _probe(
    auto_class: Any, config: Any, fields: Mapping[str, Any], inputs: Callable[[Any], Mapping[str, Tensor]]
) -> _Probe:
    with torch.device("meta"):
        shapes = tuple((name, part.shape, part.dtype) for name, part in inputs(config).items())
    text = json.dumps({"model_type": config.model_type, **fields}, sort_keys=True, default=repr)
    return _Probe(auto_class, text, shapes, copy.deepcopy(config), inputs)


@lru_cache(maxsize=16)  # the trials of a job have one config, and a process runs many of them
def _unused_parameters(probe: _Probe) -> tuple[str, ...]:
    """The names of parameters that get no gradient; found with shapes alone, which shows most of what is wrong
    with a config as well."""
    failure: RuntimeError | None = None
    for dtype in (torch.float32, torch.bfloat16):  # shapes of experts' grouped products are known in bfloat16 alone
        with torch.device("meta"):
            model = probe.auto_class.from_config(copy.deepcopy(probe.config), dtype=dtype)
        model.eval()  # no layers are dropped at random
        try:
            with FakeTensorMode(allow_non_fake_inputs=True), torch.device("meta"):
                arguments = {
                    name: part.to(dtype) if part.is_floating_point() else part
                    for name, part in probe.inputs(probe.config).items()
                }
                model(**arguments).logits.sum().backward()
        except NOT_WITHOUT_DATA:
            return ()
        except RuntimeError as error:
            failure = error
        else:
            return tuple(name for name, parameter in model.named_parameters() if parameter.grad is None)
    assert failure is not None
    raise failure


def transformers() -> Any:
    """The library, with the hub switched off in this process.

    Raises:
        ValueError: it is not installed.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"  # also for processes that this one starts
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    library = optional_library("transformers", extra="huggingface", purpose="the workload huggingface")
    # Read from the environment long ago, if something else imported it.
    library.utils.hub.constants.HF_HUB_OFFLINE = True
    return library


@contextmanager
def quiet() -> Iterator[None]:
    """Without the library's advice and progress bars, which a trial has no reader for; what matters is checked here."""
    logging = transformers().utils.logging
    verbosity, had_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if had_bars:
            logging.enable_progress_bar()


def blocks(model: nn.Module) -> Sequence[nn.Module]:
    """The elements with parameters of the outermost `ModuleList`s: a transformer's layers, a ResNet's stages.

    The direct children with parameters where there are none.
    """
    found = _outermost_elements(model)
    return [block for block in found or model.children() if next(block.parameters(), None) is not None]


def _outermost_elements(module: nn.Module) -> list[nn.Module]:
    if isinstance(module, nn.ModuleList):
        return list(module)
    return [block for child in module.children() for block in _outermost_elements(child)]


def _config_class(name: object, task: Task) -> Any:
    """The config class of the architecture."""
    tables = transformers().models.auto
    known = getattr(tables.modeling_auto, _AUTO_CLASSES[task][1])
    if not isinstance(name, str) or name not in known or name not in tables.configuration_auto.CONFIG_MAPPING_NAMES:
        near = difflib.get_close_matches(str(name), list(known), n=3) or ["gpt2", "bert", "vit"]
        raise ValueError(
            f"architecture must be one of the {len(known)} of transformers for {task} "
            f"(e.g. {', '.join(near)}), got {name!r}"
        )
    return tables.configuration_auto.CONFIG_MAPPING[name]


def _fields(config_class: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(config_class)}


def _check_fields(config_class: Any, config: Mapping[str, Any], path: str) -> None:
    """Refuses names that the config class lacks: it would keep them, without effect."""
    known = (_fields(config_class) | config_class.attribute_map.keys()) - _SET_HERE
    for name, value in config.items():
        if name in _SET_HERE:
            raise ValueError(f"{path}.{name} follows from the task and the data, got {value!r}")
        if name not in known:
            raise ValueError(
                f"{path}.{name}: {config_class.__name__} has no such field (known: {', '.join(sorted(known))}), "
                f"got {value!r}"
            )
        is_of_layers = name in ("num_hidden_layers", config_class.attribute_map.get("num_hidden_layers"))
        if is_of_layers and isinstance(value, int) and value > MAX_LAYERS:
            raise OptionRefused(f"{path}.{name}", f"must be at most {MAX_LAYERS}, got {value}")
        if name in config_class.sub_configs and isinstance(value, Mapping):
            rest = {key: inner for key, inner in value.items() if key != "model_type"}
            with _explained(f"{path}.{name}"):
                part_class = _part_class(config_class, name, value.get("model_type"))
            _check_fields(part_class, rest, f"{path}.{name}")


def _part_class(config_class: Any, name: str, model_type: object) -> Any:
    """The config class of a part, which a config may choose by a `model_type` where the library leaves it open."""
    tables = transformers().models.auto.configuration_auto
    part_class = config_class.sub_configs[name]
    if part_class is not tables.AutoConfig:
        return part_class
    if model_type is None:
        defaults = getattr(config_class, "sub_configs_defaults", {})  # which transformers 5.20 brought
        if name not in defaults:
            return type(getattr(config_class(), name))
        model_type = defaults[name].model_type
    return tables.CONFIG_MAPPING[model_type]


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Both, `above` first; objects within are merged likewise."""
    merged = dict(below)
    for name, value in above.items():
        old = merged.get(name)
        merged[name] = _merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def _token_fields(config_class: Any, fields: Mapping[str, Any], num_tokens: int) -> dict[str, Any]:
    """A vocabulary as large as the tokenizer's, and no special tokens outside it."""
    known = {field.name: field for field in dataclasses.fields(config_class)}
    if "vocab_size" not in known:
        return {}  # in a part of the config, whose default is that of a real tokenizer
    num_rows = fields.get("vocab_size", num_tokens)
    if not isinstance(num_rows, int) or num_rows < num_tokens:
        raise ValueError(f"config.vocab_size must be at least the tokenizer's {num_tokens}, got {num_rows!r}")
    outside = [
        field
        for name, field in known.items()
        if name.endswith("_token_id")
        and name not in fields
        and isinstance(field.default, int)
        # -1 and the like are for the library to make sense of.
        and field.default >= num_rows
    ]
    # Their types are in part text that only the library's own modules can evaluate.
    moved = {field.name: None if "None" in str(field.type) else num_rows - 1 for field in outside}
    return {"vocab_size": num_rows, **moved}


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turns the library's errors into a `ValueError` that begins with `what`."""
    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError

    try:
        yield
    except (*_BUILD_ERRORS, OSError, StrictDataclassError, SafetensorError) as error:
        text = " ".join(str(error).split())
        raise ValueError(f"{what}: {type(error).__name__}: {text}") from error


def _check_causal(model: nn.Module, name: str) -> None:
    """Refuses a model whose output at one token depends on a later one."""
    tokens = torch.arange(_PROBE_LENGTH)[None]
    changed = tokens.clone()
    changed[0, -1] += 1
    model.eval()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        before, after = (cast("Tensor", model(input_ids=ids).logits)[0, :-1] for ids in (tokens, changed))
    if (before - after).abs().max() > _PROBE_TOLERANCE * before.abs().max():
        raise ValueError(
            f"architecture {name} sees the tokens that a language model is to predict, so that its loss says nothing: "
            "choose a decoder, such as gpt2"
        )
