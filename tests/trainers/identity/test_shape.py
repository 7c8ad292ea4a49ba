"""The shape of a model, from the model itself and from files of its weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file, save_model
from torch import nn

from service.transfer.situation import features_of
from tests.support.shampoo.adapters import adapted_model
from trainers.config import InvalidConfig
from trainers.identity.fingerprinting import fingerprint_of
from trainers.identity.kinds import taken_for_one
from trainers.identity.safetensors_header import shape_of_safetensors
from trainers.identity.shape import has_trained, model_shape, read_model, shape_of_state_dict
from trainers.identity.values import Fingerprint, ModelShape, ParameterShape


class Net(nn.Module):
    """An embedding, a convolution with batch norm, and two matrices of one size, one of them twice."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, width)
        self.convolution = nn.Conv1d(width, width, 3)
        self.norm = nn.BatchNorm1d(width)
        self.first = nn.Linear(width, width, bias=False)
        self.second = nn.Linear(width, width, bias=False)
        self.shared = self.second


SHAPE_OF_NET = [
    {"kind": "convolution", "shape": [8, 8, 3], "count": 1},
    {"kind": "embedding", "shape": [20, 8], "count": 1},
    {"kind": "linear", "shape": [8, 8], "count": 2},
    {"kind": "vector", "shape": [8], "count": 3},
]
build_net = Net
built_net = Net()


def no_net() -> list[str]:
    return ["layers"]


def test_a_model_and_both_kinds_of_files_tell_one_shape(tmp_path: Path) -> None:
    net = Net()
    state = net.state_dict()
    del state["shared.weight"]
    torch.save(state, tmp_path / "net.pt")
    torch.save({"epoch": 3, "model": state, "optimizer": {"state": {}}}, tmp_path / "checkpoint.pt")
    save_file(state, tmp_path / "net.safetensors", metadata={"format": "pt"})
    shapes = [
        model_shape(net),
        shape_of_state_dict(tmp_path / "net.pt").shape,
        shape_of_state_dict(tmp_path / "checkpoint.pt").shape,
        shape_of_safetensors(tmp_path / "net.safetensors").shape,
    ]
    assert [shape.to_json() for shape in shapes] == [SHAPE_OF_NET] * 4
    assert ModelShape.from_json(json.loads(json.dumps(SHAPE_OF_NET))) == shapes[0]


@pytest.mark.parametrize("is_head_first", [False, True])
def test_a_head_that_is_tied_to_the_table_of_embeddings_counts_once_and_as_a_table(
    tmp_path: Path, is_head_first: bool
) -> None:
    parts = {"wte": nn.Embedding(20, 8), "mlp": nn.Linear(8, 8), "head": nn.Linear(8, 20, bias=False)}
    net = nn.ModuleDict(dict(reversed(parts.items())) if is_head_first else parts)
    net.get_submodule("head").weight = net.get_submodule("wte").weight
    state = net.state_dict()
    torch.save(state, tmp_path / "net.pt")
    torch.save({"epoch": 3, "model": state}, tmp_path / "checkpoint.pt")
    save_model(net, str(tmp_path / "net.safetensors"))  # keeps the head's name
    shapes = [
        model_shape(net),
        shape_of_state_dict(tmp_path / "net.pt").shape,
        shape_of_state_dict(tmp_path / "checkpoint.pt").shape,
        shape_of_safetensors(tmp_path / "net.safetensors").shape,
    ]
    of_all = (("embedding", (20, 8), 1), ("linear", (8, 8), 1), ("vector", (8,), 1))
    assert shapes == [ModelShape(tuple(ParameterShape(*one) for one in of_all))] * 4


def test_a_head_that_was_saved_beside_its_table_is_taken_for_it_if_the_bytes_are_equal(tmp_path: Path) -> None:
    table = torch.randn(20, 8)
    heads = {"same": table.clone(), "other": torch.cat([table[:-1], table[:1]])}
    pairs = {name: {"wte.weight": table, "lm_head.weight": head} for name, head in heads.items()}
    pairs["zeros"] = {"wte.weight": torch.zeros(20, 8), "lm_head.weight": torch.zeros(20, 8)}
    pairs["layers"] = {"first.weight": table, "second.weight": table.clone()}
    told = {}
    for name, state in pairs.items():
        save_file(state, tmp_path / f"{name}.safetensors")
        torch.save(state, tmp_path / f"{name}.pt")
        found = shape_of_safetensors(tmp_path / f"{name}.safetensors")
        assert shape_of_state_dict(tmp_path / f"{name}.pt") == found
        told[name] = found
    one = told["same"]
    assert one.shape == ModelShape((ParameterShape("embedding", (20, 8), 1),))
    assert one.remarks[1:] == (taken_for_one("wte.weight", "lm_head.weight"),)
    for name in ("other", "zeros", "layers"):
        assert sum(each.count for each in told[name].shape.parameters) == 2
        assert len(told[name].remarks) == 1
    of_head = shape_of_safetensors(tmp_path / "other.safetensors", frozen=["lm_head.*"])
    assert of_head.num_frozen == 160


def test_parts_of_one_storage_and_equal_weights_are_not_shared(tmp_path: Path) -> None:
    whole = torch.ones(8, 4)
    torch.save({"q": whole[:4], "k": whole[4:], "v": torch.ones(4, 4)}, tmp_path / "net.pt")
    assert shape_of_state_dict(tmp_path / "net.pt").shape.parameters == (ParameterShape("linear", (4, 4), 3),)


def test_files_as_torch_wrote_them_before_it_wrote_zip_files_have_a_shape(tmp_path: Path) -> None:
    state = {"first": torch.ones(8, 4), "second": torch.ones(4)}
    torch.save(state, tmp_path / "net.pt", _use_new_zipfile_serialization=False)
    parameters = ParameterShape("linear", (8, 4), 1), ParameterShape("vector", (4,), 1)
    assert shape_of_state_dict(tmp_path / "net.pt").shape == ModelShape(parameters)


def test_factors_of_low_rank_adapters_are_a_kind_of_their_own(tmp_path: Path) -> None:
    model = adapted_model()
    save_file(model.state_dict(), tmp_path / "adapted.safetensors")
    whole = shape_of_safetensors(tmp_path / "adapted.safetensors")
    for shape in (model_shape(model), whole.shape):
        adapters = {one.shape: one.count for one in shape.parameters if one.kind == "adapter"}
        assert adapters == {(3, 12): 1, (3, 10): 1, (10, 3): 2}
    base = ParameterShape("linear", (10, 12), 1)
    assert (base in whole.shape.parameters, base in model_shape(model).parameters) == (True, False)
    named = shape_of_safetensors(tmp_path / "adapted.safetensors", frozen=["*.base_layer.*"])
    assert named.shape == model_shape(model)
    assert named.num_frozen == read_model(model).num_frozen == 10 * 12 + 10 * 10 + 2 * 10
    assert features_of(whole.shape).width == features_of(named.shape).width == 10
    assert features_of(whole.shape).depth == features_of(named.shape).depth == 2


def headed() -> nn.ModuleDict:
    """A head of four classes on a frozen backbone."""
    backbone = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 32))
    return nn.ModuleDict({"backbone": backbone.requires_grad_(False), "head": nn.Linear(32, 4)})


def test_a_frozen_backbone_is_no_part_of_the_shape_and_its_size_is_told(tmp_path: Path) -> None:
    head = ModelShape((ParameterShape("linear", (4, 32), 1), ParameterShape("vector", (4,), 1)))
    num_frozen = 12 * 48 + 48 + 48 * 32 + 32
    model = headed()
    torch.save(model.state_dict(), tmp_path / "net.pt")
    save_file(model.state_dict(), tmp_path / "net.safetensors")
    of_files = [
        shape_of_state_dict(tmp_path / "net.pt", frozen=["backbone.*"]),
        shape_of_safetensors(tmp_path / "net.safetensors", frozen=["backbone.0.*", "backbone.2.*"]),
    ]
    for read in (read_model(model), read_model(headed().requires_grad_(True), frozen=["backbone.*"]), *of_files):
        assert (read.shape, read.num_frozen) == (head, num_frozen)
    assert (features_of(head).width, features_of(head).depth) == (32, 1)
    # A file alone cannot know it, and says so.
    unknown = shape_of_safetensors(tmp_path / "net.safetensors")
    assert (unknown.shape, unknown.num_frozen) == (model_shape(headed().requires_grad_(True)), 0)
    assert "does not say which parameters are trained" in unknown.remarks[0]
    found = fingerprint_of(f"{__name__}:headed", {})
    assert (found.shape, found.num_frozen, found.remarks) == (head, num_frozen, ())


def test_a_pattern_of_nothing_and_one_of_everything_are_refused(tmp_path: Path) -> None:
    save_file(headed().state_dict(), tmp_path / "net.safetensors")
    for frozen, message in ((["bakcbone.*"], "no parameter has a name like 'bakcbone"), (["*"], "are frozen")):
        with pytest.raises(ValueError, match=message):
            shape_of_safetensors(tmp_path / "net.safetensors", frozen=frozen)
        with pytest.raises(InvalidConfig, match=message):
            fingerprint_of(f"{__name__}:headed", {}, frozen=frozen)
    with pytest.raises(InvalidConfig, match="is a workload, which says itself what is trained"):
        fingerprint_of("digits-mlp", {}, frozen=["*.bias"])
    assert not has_trained(headed().requires_grad_(False))


def test_causal_masks_that_published_models_keep_are_no_parameters(tmp_path: Path) -> None:
    weights = {"wte.weight": torch.ones(9, 4), "h.0.attn.c_attn.weight": torch.ones(4, 12)}
    kernel = {"blur.weight": torch.ones(1, 1, 3, 3)}
    masks = {"h.0.attn.bias": torch.ones(1, 1, 64, 64), "mask": torch.ones(64, 64) > 0, "positions": torch.arange(64)}
    save_file({**weights, **kernel, **masks}, tmp_path / "gpt2.safetensors")
    save_file({**weights, **kernel}, tmp_path / "plain.safetensors")
    torch.save({**weights, **kernel, **masks}, tmp_path / "gpt2.pt")
    found, plain = (shape_of_safetensors(tmp_path / f"{name}.safetensors").shape for name in ("gpt2", "plain"))
    assert found == plain == shape_of_state_dict(tmp_path / "gpt2.pt").shape
    assert ParameterShape("convolution", (1, 1, 3, 3), 1) in found.parameters


def test_no_code_of_a_file_runs(tmp_path: Path) -> None:
    torch.save(Net(), tmp_path / "whole.pt")
    with pytest.raises(ValueError, match="is no state dict: it holds objects") as refused:
        shape_of_state_dict(tmp_path / "whole.pt")
    assert "weights_only" not in str(refused.value)


def with_header(text: bytes) -> bytes:
    return len(text).to_bytes(8, "little") + text


def test_what_has_no_elements_is_no_part_of_a_shape(tmp_path: Path) -> None:
    header = b'{"empty.weight": {"shape": [0, 4]}, "b\\n\\u001b[2J": {"shape": [3]}}'
    (tmp_path / "x.safetensors").write_bytes(with_header(header))
    module = nn.ParameterList([torch.ones(0, 4), torch.ones(3)])
    of_three = ModelShape((ParameterShape("vector", (3,), 1),))
    assert shape_of_safetensors(tmp_path / "x.safetensors").shape == model_shape(module) == of_three


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"\x10", b"\xff" * 20, with_header(b"[1,2]"), with_header(b"[" * 100_000)),
        *(
            with_header(b'{"a": {"shape": %s}}' % shape)
            for shape in (b"[1e400]", b"[-3, 2]", b'"34"', b"[2.5]", b"[NaN]")
        ),
    ],
)
def test_what_is_no_safetensors_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match="is no safetensors file"):
        shape_of_safetensors(tmp_path / "x.safetensors")


def test_a_tensor_of_no_size_is_named_with_what_stands_there(tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(with_header(b'{"a": {"shape": [2.5]}}'))
    with pytest.raises(ValueError, match=r"a tensor's shape is a list of sizes, got \[2\.5\]"):
        shape_of_safetensors(tmp_path / "x.safetensors")


def test_a_file_of_numbers_alone_holds_no_tensors(tmp_path: Path) -> None:
    torch.save({"step": 3}, tmp_path / "x.pt")
    with pytest.raises(ValueError, match=r"x\.pt holds no tensors by name"):
        shape_of_state_dict(tmp_path / "x.pt")


@pytest.mark.parametrize("shape", [(), (0, 2)])
def test_a_model_without_parameters_has_no_shape(shape: tuple[int, ...]) -> None:
    parameters = (ParameterShape("linear", shape, 1),) if shape else ()
    with pytest.raises(ValueError, match="without parameters"):
        ModelShape(parameters)


@pytest.mark.parametrize("name", ["Net", "build_net", "built_net"])
def test_any_module_of_python_has_a_fingerprint(name: str) -> None:
    found = fingerprint_of(f"{__name__}:{name}", {})
    assert found == Fingerprint(ModelShape.from_json(SHAPE_OF_NET), f"{__name__}:{name}")
    assert Fingerprint.from_json(found.to_json()) == found


def test_a_workloads_fingerprint_knows_its_options() -> None:
    plain, wide = fingerprint_of("digits-mlp", {}), fingerprint_of("digits-mlp", {"width": 256})
    assert plain.digest != wide.digest
    assert (wide.workload, wide.source) == ("digits-mlp", "digits-mlp width=256")
    assert {"kind": "linear", "shape": [256, 64], "count": 1} in wide.shape.to_json()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (f"{__name__}:Absent", {}, r"has no 'Absent' \(its classes: .*Net"),
        ("no_such_module:Net", {}, "cannot be imported"),
        (f"{__name__}:Net", {"width": "wide"}, "cannot be built: TypeError"),
        (f"{__name__}:built_net", {"width": 4}, "which is built, got width"),
        (f"{__name__}:SHAPE_OF_NET", {}, "is no module"),
        (f"{__name__}:no_net", {}, r"no_net built no torch.nn.Module, but \['layers'\]"),
        ("digits-mlpp", {}, "unknown workload 'digits-mlpp'"),
        ("absent.pt", {}, "no file 'absent.pt' is here, and unknown workload"),
    ],
)
def test_what_has_no_fingerprint_says_why(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        fingerprint_of(name, options)  # type: ignore[arg-type]  # JSON
