"""The language models: what each prediction may see, sizes, first weights, and the same numbers as `transformers`."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainers.workload.parameter_groups import groups_by_rule
from trainers.workloads.language.description import PARAMETER_GROUPS
from trainers.workloads.language.llama import Llama, LlamaBlock, rotate, rotation_angles, swiglu_width
from trainers.workloads.language.transformer import GPT, TransformerShape

SHAPE = TransformerShape(num_blocks=2, num_heads=4, width=32, context_length=24, num_tokens=50, num_key_value_heads=2)
MODELS: list[type[GPT] | type[Llama]] = [GPT, Llama]


def seeded_model(kind: type[GPT] | type[Llama], shape: TransformerShape = SHAPE) -> nn.Module:
    torch.manual_seed(0)
    return kind(shape).eval()


def random_tokens(num_tokens: int = SHAPE.num_tokens) -> Tensor:
    return torch.randint(0, num_tokens, (3, SHAPE.context_length), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", MODELS)
def test_a_prediction_sees_all_tokens_up_to_its_own_and_none_after(kind: type[GPT] | type[Llama]) -> None:
    model, tokens = seeded_model(kind), random_tokens()
    first, later = tokens.clone(), tokens.clone()
    first[:, 0] = (first[:, 0] + 1) % SHAPE.num_tokens
    later[:, 10:] = (later[:, 10:] + 1) % SHAPE.num_tokens
    with torch.no_grad():
        logits = model(tokens)
        assert logits.shape == (3, SHAPE.context_length, SHAPE.num_tokens)
        assert ((logits - model(first)).abs().amax(-1) > 1e-6).all()
        torch.testing.assert_close(model(later)[:, :10], logits[:, :10], rtol=0, atol=1e-6)
        # Nor does it depend on there being any.
        torch.testing.assert_close(model(tokens[:, :10]), logits[:, :10], rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", MODELS)
def test_a_tied_model_has_no_output_layer_of_its_own(kind: type[GPT] | type[Llama]) -> None:
    loose, tied = seeded_model(kind), seeded_model(kind, replace(SHAPE, is_tied=True))
    num_entries = [sum(parameter.numel() for parameter in model.parameters()) for model in (loose, tied)]
    assert num_entries[0] - num_entries[1] == SHAPE.num_tokens * SHAPE.width
    assert "output.weight" not in tied.state_dict()
    # A row that few of the tokens look up still moves the logits of its token everywhere.
    with torch.no_grad():
        before = tied(random_tokens())
        tied.get_parameter("token_embedding.weight")[SHAPE.num_tokens - 1] *= 2
        changed = (tied(random_tokens()) - before).abs()[..., SHAPE.num_tokens - 1]
    assert (changed > 1e-3).float().mean() > 0.9


def test_llama_has_neither_biases_nor_a_table_of_positions() -> None:
    names = {name for name, _ in seeded_model(Llama).named_parameters()}
    assert not [name for name in names if "bias" in name or "position" in name]
    assert seeded_model(Llama).state_dict().keys() == names


def test_a_rotation_keeps_lengths_and_knows_distances_only() -> None:
    angles = rotation_angles(16, 8)
    assert angles.shape == (16, 4)
    torch.manual_seed(0)
    query, key = torch.randn(2, 8)
    turned_query, turned_key = (
        rotate(vector.expand(1, 1, 16, 8), angles.cos(), angles.sin())[0, 0] for vector in (query, key)
    )
    torch.testing.assert_close(turned_query.norm(dim=1), query.norm().expand(16))
    products = turned_query @ turned_key.T
    for distance in range(-15, 16):
        along = products.diagonal(distance)
        torch.testing.assert_close(along, along[:1].expand_as(along), rtol=0, atol=1e-5)
    assert products[:, 0].std() > 0.1


def test_queries_of_a_group_share_keys_and_values() -> None:
    torch.manual_seed(0)
    block = LlamaBlock(SHAPE)
    angles = rotation_angles(SHAPE.context_length, 8)
    hidden = torch.randn(2, SHAPE.context_length, SHAPE.width)
    with torch.no_grad():
        mixed = block._attention(hidden, angles.cos(), angles.sin())

        def heads(layer: nn.Linear) -> Tensor:
            of_heads: Tensor = layer(hidden).unflatten(-1, (-1, 8)).transpose(1, 2)
            return of_heads

        query, key = (rotate(heads(layer), angles.cos(), angles.sin()) for layer in (block.query, block.key))
        key, value = key.repeat_interleave(2, dim=1), heads(block.value).repeat_interleave(2, dim=1)
        scores = query @ key.transpose(2, 3) / math.sqrt(8)
        mask = torch.ones(SHAPE.context_length, SHAPE.context_length).triu(1).bool()
        expected = scores.masked_fill(mask, -math.inf).softmax(-1) @ value
        expected = block.attention_projection(expected.transpose(1, 2).flatten(2))
    torch.testing.assert_close(mixed, expected, rtol=0, atol=1e-6)


def test_a_gated_mlp_has_about_as_many_weights_as_a_plain_one() -> None:
    assert [swiglu_width(width) for width in (64, 192, 768, 4096)] == [192, 512, 2048, 10944]


@pytest.mark.parametrize("kind", MODELS)
def test_weights_begin_with_a_deviation_that_goes_with_the_width(kind: type[GPT] | type[Llama]) -> None:
    model = seeded_model(kind, replace(SHAPE, width=128, num_tokens=200))
    deviation = 0.02 * math.sqrt(768 / 128)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            assert (parameter == (1.0 if name.endswith("norm.weight") else 0.0)).all(), name
            continue
        expected = deviation / 2 if name.endswith("_projection.weight") else deviation
        # The deviation of n draws is off by 1/sqrt(2n): 1.3 % for the smallest matrix, of 3,072 entries.
        assert parameter.std().item() == pytest.approx(expected, rel=0.05), name


@pytest.mark.parametrize("precondition_embeddings", [False, True])
@pytest.mark.parametrize("kind", MODELS)
def test_groups_hold_each_parameter_once(kind: type[GPT] | type[Llama], precondition_embeddings: bool) -> None:
    model = seeded_model(kind)
    matrices, tables, vectors = groups_by_rule(
        model, PARAMETER_GROUPS, options={"precondition_embeddings": precondition_embeddings}
    )
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    grouped = [names[id(parameter)] for group in (matrices, tables, vectors) for parameter in group["params"]]
    assert sorted(grouped) == sorted(names.values())
    assert set(matrices) == {"params"}
    assert all(parameter.ndim == 1 for parameter in vectors["params"])
    assert vectors["weight_decay"] == 0
    expected = {"token_embedding.weight", "output.weight"} | ({"position_embedding.weight"} if kind is GPT else set())
    assert {names[id(parameter)] for parameter in tables["params"]} == expected
    assert "weight_decay" not in tables  # embeddings decay, as nanoGPT's
    assert tables.get("preconditioner") == (None if precondition_embeddings else "none")


@pytest.mark.slow
def test_both_models_give_the_numbers_of_transformers() -> None:
    transformers: Any = pytest.importorskip("transformers")
    with torch.no_grad():
        tokens = random_tokens()
        for ours, theirs, names in ((*_llamas(transformers), _LLAMA), (*_gpts(transformers), _GPT2)):
            theirs_by_name = dict(theirs.named_parameters())
            for name, parameter in ours.named_parameters():
                their_name = name
                for pattern, replacement in names:
                    their_name = re.sub(pattern, replacement, their_name)
                weight = theirs_by_name.pop(their_name)
                # GPT-2 there keeps its matrices transposed.
                weight.copy_(
                    parameter.T if ours.__class__ is GPT and "blocks" in name and weight.ndim == 2 else parameter
                )
            assert not theirs_by_name
            # The same operations in float32; sums in another order.
            torch.testing.assert_close(ours(tokens), theirs(tokens).logits, rtol=0, atol=1e-5)


_LLAMA = (
    ("^norm", "model.norm"),
    ("token_embedding", "model.embed_tokens"),
    ("^output", "lm_head"),
    ("blocks", "model.layers"),
    ("attention_norm", "input_layernorm"),
    ("mlp_norm", "post_attention_layernorm"),
    ("attention_projection", "self_attn.o_proj"),
    (r"\.query\.", ".self_attn.q_proj."),
    (r"\.key\.", ".self_attn.k_proj."),
    (r"\.value\.", ".self_attn.v_proj."),
    ("mlp_gate", "mlp.gate_proj"),
    ("mlp_hidden", "mlp.up_proj"),
    ("mlp_projection", "mlp.down_proj"),
)
_GPT2 = (
    ("^norm", "transformer.ln_f"),
    ("token_embedding", "transformer.wte"),
    ("position_embedding", "transformer.wpe"),
    ("blocks", "transformer.h"),
    ("attention_norm", "ln_1"),
    ("mlp_norm", "ln_2"),
    ("query_key_value", "attn.c_attn"),
    ("attention_projection", "attn.c_proj"),
    ("mlp_hidden", "mlp.c_fc"),
    ("mlp_projection", "mlp.c_proj"),
)


def _llamas(transformers: Any) -> tuple[nn.Module, nn.Module]:
    config = transformers.LlamaConfig(
        vocab_size=SHAPE.num_tokens,
        hidden_size=SHAPE.width,
        intermediate_size=swiglu_width(SHAPE.width),
        num_hidden_layers=SHAPE.num_blocks,
        num_attention_heads=SHAPE.num_heads,
        num_key_value_heads=SHAPE.num_key_value_heads,
        max_position_embeddings=SHAPE.context_length,
        rms_norm_eps=1e-5,
        bos_token_id=0,
        eos_token_id=1,
    )
    theirs: nn.Module = transformers.LlamaForCausalLM(config).eval()
    return seeded_model(Llama), theirs


def _gpts(transformers: Any) -> tuple[nn.Module, nn.Module]:
    config = transformers.GPT2Config(
        vocab_size=SHAPE.num_tokens,
        n_positions=SHAPE.context_length,
        n_embd=SHAPE.width,
        n_layer=SHAPE.num_blocks,
        n_head=SHAPE.num_heads,
        bos_token_id=0,
        eos_token_id=1,
    )
    theirs: nn.Module = transformers.GPT2LMHeadModel(config).eval()
    return seeded_model(GPT, replace(SHAPE, is_tied=True)), theirs
