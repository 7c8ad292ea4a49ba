"""The language model on text of a user's: here some files of Python's own library."""

from __future__ import annotations

import math
import sysconfig
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.trainers import promises
from tests.support.trainers.ranks import WarmRanks
from tests.support.trainers.trials import run_trial
from trainers.config import InvalidConfig, OptimizerConfig, ParallelismConfig, TrialConfig
from trainers.loop import train
from trainers.ranks.context import single_process_context
from trainers.workload.batches import train_batches
from trainers.workload.protocol import HasBlocks, HasParameterGroups, HasTokens
from trainers.workloads.language.llama import Llama
from trainers.workloads.language.text_lm import SHAPES, TextLM, rounded_vocabulary
from trainers.workloads.language.transformer import GPT
from trainers.workloads.registry import describe, load

FILES = ("argparse", "ast", "calendar", "configparser", "dataclasses", "doctest", "inspect", "pdb", "tarfile", "typing")
CONTEXT = SHAPES["gpt"]["tiny"].context_length
ARCHITECTURES = pytest.mark.parametrize("architecture", ["gpt", "llama"])


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Options of a tiny model on half a megabyte of text in ten files."""
    root = tmp_path_factory.mktemp("text")
    for name in FILES:
        source = Path(sysconfig.get_paths()["stdlib"]) / f"{name}.py"
        (root / f"{name}.txt").write_bytes(source.read_bytes())
    cache = tmp_path_factory.mktemp("cache")
    return {"path": str(root), "cache_directory": str(cache), "num_validation_sequences": 64}


def text_lm(options: dict[str, Any], **fields: Any) -> TextLM:
    workload = load("text-lm", {**options, **fields})
    assert isinstance(workload, TextLM)
    return workload


def test_batches_and_validation_are_text_of_their_side(options: dict[str, Any]) -> None:
    workload = text_lm(options)
    train, validation = (side.tobytes() for side in (workload.corpus.train_tokens, workload.corpus.validation_tokens))
    assert workload.num_train_examples == (len(train) // 2 - 1) // CONTEXT
    assert workload.tokens_per_example == CONTEXT
    batch = next(train_batches(workload, batch_size=8, seed=0, rank=1, world_size=2, start_step=3))
    assert (batch.shape, batch.dtype) == ((4, CONTEXT + 1), torch.int32)
    assert all(row.numpy().astype(np.uint16).tobytes() in train for row in batch)
    places = [validation.index(row.tobytes()) / len(validation) for row in workload._validation]
    for quarter in range(4):  # spread over the text; repeated passages may be found further ahead
        assert sum(quarter <= 4 * place < quarter + 1 for place in places) == pytest.approx(16, abs=3)


def test_all_of_the_validation_text_is_evaluated_on_demand(options: dict[str, Any]) -> None:
    workload = text_lm(options, num_validation_sequences=None)
    assert len(workload._validation) == (len(workload.corpus.validation_tokens) - 1) // CONTEXT


@ARCHITECTURES
def test_it_is_what_the_loop_asks_for(options: dict[str, Any], architecture: str) -> None:
    workload = text_lm(options, architecture=architecture)
    assert isinstance(workload, HasBlocks)
    assert isinstance(workload, HasParameterGroups)
    assert isinstance(workload, HasTokens)
    model = workload.build_model()
    assert isinstance(model, GPT if architecture == "gpt" else Llama)
    assert list(workload.blocks(model)) == list(model.blocks)
    assert workload.parameter_groups(model)[1]["preconditioner"] == "none"
    preconditioned = text_lm(options, architecture=architecture, precondition_embeddings=True)
    assert "preconditioner" not in preconditioned.parameter_groups(model)[1]


@ARCHITECTURES
def test_loss_and_evaluation_are_the_same_mean(options: dict[str, Any], architecture: str) -> None:
    workload = text_lm(options, architecture=architecture)
    torch.manual_seed(0)
    model = workload.build_model().eval()
    with torch.no_grad():
        metrics = workload.evaluate(model, rank=0, world_size=1, device="cpu")
        loss = workload.loss(model, torch.from_numpy(workload._validation.astype(np.int32))).item()
    means = {name: total / weight for name, (total, weight) in metrics.items()}
    assert metrics["validation_loss"][1] == 64 * CONTEXT
    assert means["validation_loss"] == pytest.approx(loss, rel=1e-5)
    # A byte is a token, but for the one that ends each document.
    assert means["validation_bits_per_byte"] == pytest.approx(loss / math.log(2), rel=1e-3)
    # Untrained, it is next to indifferent.
    assert loss == pytest.approx(math.log(257), abs=0.3)


@pytest.mark.slow
@ARCHITECTURES
def test_data_and_evaluation_are_shared_by_ranks(options: dict[str, Any], architecture: str) -> None:
    options = {**options, "architecture": architecture}
    promises.assert_ranks_see_parts_of_one_batch("text-lm", options)
    promises.assert_batches_go_on_at_any_step("text-lm", options)
    promises.assert_an_epoch_has_each_example_once("text-lm", options)
    promises.assert_ranks_share_the_evaluation("text-lm", options, more_than_examples=70)
    promises.assert_the_model_is_drawn_from_the_global_generator("text-lm", options)


@pytest.mark.slow
@pytest.mark.parametrize(("architecture", "optimizer"), [("gpt", "adamw"), ("llama", "shampoo")])
def test_resume_is_bit_identical(options: dict[str, Any], architecture: str, optimizer: str, tmp_path: Path) -> None:
    options = {**options, "architecture": architecture, "num_validation_sequences": 8}
    promises.assert_resume_is_bit_identical("text-lm", options, optimizer, tmp_path)


@ARCHITECTURES
def test_one_rank_equals_two(options: dict[str, Any], architecture: str, two_ranks: WarmRanks) -> None:
    promises.assert_one_rank_equals_two("text-lm", {**options, "architecture": architecture}, two_ranks)


@pytest.mark.parametrize("model", [{"architecture": "gpt", "tie_embeddings": True}, {"architecture": "llama"}])
def test_ranks_with_shards_train_the_same_model(
    options: dict[str, Any], model: dict[str, Any], two_ranks: WarmRanks
) -> None:
    sharded = ParallelismConfig(mode="fsdp2")
    promises.assert_one_rank_equals_two("text-lm", {**options, **model}, two_ranks, parallelism=sharded)


@pytest.mark.slow
@ARCHITECTURES
def test_adamw_learns_more_than_how_frequent_bytes_are(options: dict[str, Any], architecture: str) -> None:
    description = describe("text-lm")
    config = TrialConfig(
        workload="text-lm",
        workload_options={**options, "architecture": architecture},
        optimizer=OptimizerConfig("adamw", {"lr": 1e-2}),
        num_steps=60,
        evaluate_every=20,
        batch_size=8,
    )
    found = list(train(config, single_process_context()))
    assert all(measurement.metrics.keys() >= description.metrics.keys() for measurement in found)
    losses = [measurement.metrics["validation_loss"] for measurement in found]
    assert losses == sorted(losses, reverse=True)
    frequencies = np.bincount(text_lm(options).corpus.validation_tokens)
    shares = frequencies[frequencies > 0] / frequencies.sum()
    # Measured: 2.8 and 2.7 after the 60 steps, and 3.1 for who knows the frequencies of the validation text itself.
    assert losses[-1] < -(shares * np.log(shares)).sum() - 0.1


def test_two_ranks_prepare_the_text_once(options: dict[str, Any], tmp_path: Path, two_ranks: WarmRanks) -> None:
    fields = {"architecture": "llama", "cache_directory": str(tmp_path / "cache")}
    for found in two_ranks.run(run_trial, promises.trial("text-lm", {**options, **fields})):
        assert [one.step for one in found] == [4, 8, 12]
    assert len(list((tmp_path / "cache").glob("text-*/manifest.json"))) == 1


def test_named_sizes_have_the_parameters_they_say() -> None:
    def num_parameters(architecture: str, size: str, num_tokens: int) -> int:
        shape = replace(SHAPES[architecture][size], num_tokens=num_tokens)
        with torch.device("meta"):
            model = GPT(shape) if architecture == "gpt" else Llama(shape)
        return sum(parameter.numel() for parameter in model.parameters())

    assert num_parameters("gpt", "gpt2-124m", 50_257) == 124_439_808  # as published
    assert num_parameters("llama", "llama-124m", 32_000) == pytest.approx(124.6e6, rel=1e-3)
    for architecture in ("gpt", "llama"):
        tiny, small = (num_parameters(architecture, size, 257) for size in ("tiny", "small"))
        assert small > 10 * tiny


def test_a_size_can_be_overridden_piece_by_piece(options: dict[str, Any]) -> None:
    given = {"num_blocks": 3, "num_heads": 6, "num_key_value_heads": 3, "width": 48, "context_length": 32}
    workload = text_lm(options, architecture="llama", tie_embeddings=True, **given)
    assert {name: getattr(workload.shape, name) for name in given} == given
    assert workload.shape.is_tied
    assert workload.shape.num_tokens == 257
    logits = workload.build_model()(torch.zeros(2, 32, dtype=torch.int64))
    assert logits.shape == (2, 32, 257)


def test_vocabularies_of_tokenizers_are_rounded_up() -> None:
    assert [rounded_vocabulary(number) for number in (256, 257, 32_000, 50_257)] == [256, 257, 32_000, 50_304]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"path": ""}, "path must be a string that is not empty, got ''"),
        ({"path": 3}, "path must be a string that is not empty, got 3"),
        ({"path": "/nowhere"}, "path must be a file or a directory, got '/nowhere'"),
        ({"file_pattern": "*.doc"}, r"is a directory without a file that '\*.doc' finds"),
        ({"file_pattern": ""}, "file_pattern must be a string"),
        ({"architecture": "rnn"}, "architecture must be one of gpt, llama, got 'rnn'"),
        ({"size": "large"}, "size must be one of tiny, small, gpt2-124m, got 'large'"),
        ({"size": ["tiny"]}, "size must be one of tiny, small, gpt2-124m, got "),
        ({"architecture": "llama", "size": "gpt2-124m"}, "size must be one of tiny, small, llama-124m, got "),
        ({"num_blocks": 0}, "num_blocks must be an integer >= 1, got 0"),
        ({"width": 64.0}, "width must be an integer >= 1, got 64.0"),
        ({"width": 66}, r"width must be a multiple of num_heads \(4\), got 66"),
        ({"architecture": "llama", "width": 12}, r"width must be a multiple of twice num_heads \(4\)"),
        ({"architecture": "llama", "num_heads": 1}, r"multiple of num_key_value_heads \(2\), got 1"),
        ({"num_key_value_heads": 2}, "num_key_value_heads has no effect with gpt, got 2"),
        ({"context_length": True}, "context_length must be an integer >= 1, got True"),
        ({"context_length": 10**6}, r"less than the number of training tokens \(\d+\), got 1000000"),
        ({"tie_embeddings": 1}, "tie_embeddings must be true or false, got 1"),
        ({"precondition_embeddings": None}, "precondition_embeddings must be true or false, got None"),
        ({"tokenizer": "gpt2"}, "tokenizer must be byte or the path of a tokenizer.json, got 'gpt2'"),
        ({"tokenizer": None}, "tokenizer must be a string"),
        ({"text_column": "body"}, "text_column has no effect without Parquet files, got 'body'"),
        ({"validation_share": 1}, r"validation_share must be a number in \(0, 1\), got 1"),
        ({"validation_seed": -1}, "validation_seed must be an integer >= 0, got -1"),
        ({"validation_path": "/nowhere"}, "validation_path must be a file or a directory, got '/nowhere'"),
        ({"num_validation_sequences": 0}, "num_validation_sequences must be an integer >= 1, got 0"),
        ({"cache_directory": 3}, "cache_directory must be a path or null, got 3"),
    ],
)
def test_a_wrong_option_is_refused_with_its_name_and_value(
    options: dict[str, Any], wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidConfig, match=message) as caught:
        load("text-lm", {**options, **wrong})
    assert caught.value.field.partition(".")[0] == "workload_options"


def test_options_that_would_do_nothing_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("text\n" * 1000)
    one = str(tmp_path / "one.txt")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"validation_path": one, "validation_share": 0.1}, "validation_share has no effect beside validation_path"),
        ({"validation_path": one, "validation_seed": 0}, "validation_seed has no effect beside validation_path"),
        ({"path": one, "validation_seed": 0}, "validation_seed has no effect with a single text file"),
    ]
    for wrong, message in cases:
        with pytest.raises(InvalidConfig, match=message):
            load("text-lm", {**options, **wrong})


def test_the_path_is_required() -> None:
    with pytest.raises(InvalidConfig, match=r"workload_options.path: is required by text-lm: a text file, "):
        load("text-lm", {})


def test_a_tokenizer_without_tokens_is_refused_by_its_file(options: dict[str, Any], tmp_path: Path) -> None:
    tokenizers: Any = pytest.importorskip("tokenizers")
    file = tmp_path / "tokenizer.json"
    tokenizers.Tokenizer(tokenizers.models.WordLevel({}, unk_token="w0")).save(str(file))
    with pytest.raises(InvalidConfig, match=f"tokenizer '{file}' has no tokens"):
        load("text-lm", {**options, "tokenizer": str(file)})


def test_a_tokenizer_file_makes_the_vocabulary(options: dict[str, Any], tmp_path: Path) -> None:
    tokenizers: Any = pytest.importorskip("tokenizers")
    words = {f"w{number}": number for number in range(1000)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({**words, "<|endoftext|>": 1000}, unk_token="w0"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    workload = text_lm(options, tokenizer=str(tmp_path / "tokenizer.json"))
    assert workload.corpus.num_tokens == 1001
    assert workload.shape.num_tokens == 1024
    model = workload.build_model().eval()
    with torch.no_grad():
        metrics = workload.evaluate(model, rank=0, world_size=1, device="cpu")
    num_tokens, num_bytes = metrics["validation_loss"][1], metrics["validation_bits_per_byte"][1]
    assert num_bytes == num_tokens * workload.corpus.bytes_per_validation_token
    assert workload.corpus.bytes_per_validation_token > 3  # words of source code and the space around them
