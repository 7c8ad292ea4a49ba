from __future__ import annotations

import math

import pytest
import torch

from trainers.workload.batches import train_batches
from trainers.workloads.language.stdlib_gpt import SHAPES, StdlibGPT, sequences
from trainers.workloads.language.stdlib_text import stdlib_text
from trainers.workloads.language.transformer import GPT

CONTEXT = SHAPES["tiny"].context_length


def seeded_model(size: str = "tiny") -> GPT:
    torch.manual_seed(0)
    return GPT(SHAPES[size])


def random_tokens() -> torch.Tensor:
    return torch.randint(0, 256, (3, CONTEXT), generator=torch.Generator().manual_seed(0))


def test_sequences_predict_each_byte_of_the_text_once() -> None:
    text = torch.arange(23, dtype=torch.uint8)
    cut = sequences(text, 5)
    assert cut.tolist() == [list(range(start, start + 6)) for start in (0, 5, 10, 15)]
    assert cut[:, 1:].flatten().tolist() == list(range(1, 21))


def test_batches_are_bytes_of_the_training_text() -> None:
    workload = StdlibGPT(size="tiny")
    text = stdlib_text().train_text.numpy().tobytes()
    assert workload.num_train_examples == (len(text) - 1) // CONTEXT
    batch = next(train_batches(workload, batch_size=8, seed=0, rank=1, world_size=2, start_step=3))
    assert (batch.shape, batch.dtype) == ((4, CONTEXT + 1), torch.uint8)
    assert all(row.numpy().tobytes() in text for row in batch)


def test_validation_bytes_are_spread_over_the_held_out_text() -> None:
    workload = StdlibGPT(size="tiny")
    assert workload.text is stdlib_text()
    files = stdlib_text().validation_text.numpy().tobytes()
    places = [files.index(row.numpy().tobytes()) for row in workload._validation]
    assert len(places) == SHAPES["tiny"].num_validation_sequences
    # A quarter of the sequences lies in each quarter of the text; repeated passages may be found further ahead.
    for quarter in range(4):
        inside = sum(quarter <= 4 * place / len(files) < quarter + 1 for place in places)
        assert inside == pytest.approx(64, abs=4)


def test_no_prediction_sees_the_bytes_after_it() -> None:
    model = seeded_model()
    tokens = random_tokens()
    changed = tokens.clone()
    changed[:, 20:] = (changed[:, 20:] + 1) % 256
    with torch.no_grad():
        before, after = model(tokens), model(changed)
    assert before.shape == (3, CONTEXT, 256)
    torch.testing.assert_close(before[:, :20], after[:, :20], rtol=0, atol=1e-6)
    assert ((before[:, 20:] - after[:, 20:]).abs().amax(dim=-1) > 1e-3).all()


def test_a_prediction_sees_all_bytes_before_it() -> None:
    model = seeded_model()
    tokens = random_tokens()
    changed = tokens.clone()
    changed[:, 0] = (changed[:, 0] + 1) % 256
    with torch.no_grad():
        difference = (model(tokens) - model(changed)).abs().amax(dim=-1)
    assert (difference > 1e-5).all()


def test_the_untrained_model_is_next_to_indifferent() -> None:
    workload = StdlibGPT(size="tiny")
    with torch.no_grad():
        loss, num_bytes = workload.evaluate(seeded_model(), rank=0, world_size=1, device="cpu")["validation_loss"]
    assert num_bytes == 256 * CONTEXT
    # Its logits have a deviation of 0.0693 * sqrt(64) = 0.55, which adds half its square.
    assert loss / num_bytes == pytest.approx(math.log(256) + 0.55**2 / 2, abs=0.1)


@pytest.mark.parametrize("size", SHAPES)
def test_weights_begin_as_gpt_2s_at_this_width(size: str) -> None:
    shape = SHAPES[size]
    deviation = 0.02 * math.sqrt(768 / shape.width)
    num_projections = 0
    for name, parameter in seeded_model(size).named_parameters():
        if parameter.ndim == 1:
            assert (parameter == (1.0 if name.endswith("norm.weight") else 0.0)).all(), name
            continue
        projects = name.endswith("_projection.weight")
        num_projections += projects
        expected = deviation / math.sqrt(2 * shape.num_blocks) if projects else deviation
        # The deviation of n draws is off by 1/sqrt(2n): 1.1 % for the smallest matrix, of 4,096 entries.
        assert parameter.std().item() == pytest.approx(expected, rel=0.05), name
    assert num_projections == 2 * shape.num_blocks


def test_embedding_and_output_are_matrices_of_their_own() -> None:
    model = seeded_model()
    assert model.output is not None
    assert model.token_embedding.weight.shape == model.output.weight.shape == (256, 64)
    assert model.token_embedding.weight is not model.output.weight
    assert not torch.equal(model.token_embedding.weight, model.output.weight)


def test_loss_and_evaluation_are_the_same_mean() -> None:
    workload = StdlibGPT(size="tiny")
    model = seeded_model()
    with torch.no_grad():
        total, weight = workload.evaluate(model, rank=0, world_size=1, device="cpu")["validation_loss"]
        assert total / weight == pytest.approx(workload.loss(model, workload._validation).item(), rel=1e-5)
