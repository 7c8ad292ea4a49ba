"""Tuned models for tests of transfers: their situations, stored configs, and the common answer of the shipped ones."""

from __future__ import annotations

from typing import Any

import pytest

from service.api.schemas.untuned import UntunedQuestion
from service.evidence.types import EvidenceStatus
from service.transfer.candidates import Source, SourceKind, TransferCandidate
from service.transfer.pooled import PooledAnswers
from service.transfer.rules import TunedConfig
from service.transfer.situation import Situation
from service.use_cases.untuned import asking
from service.use_cases.untuned.asking import ask_pooled, question_of
from trainers.identity.values import ModelShape, ParameterShape


def situation(
    kind: str = "linear", *, width: int = 64, workload: str | None = "mine", num_steps: int = 500
) -> Situation:
    shape = (width, width) if kind == "linear" else (width, width, 3, 3)
    parameters = (ParameterShape(kind, shape, 4),)  # type: ignore[arg-type]  # one of the kinds
    return Situation.of(ModelShape(parameters), batch_size=64, num_steps=num_steps, workload=workload)


def stored(
    lr: float, status: EvidenceStatus = EvidenceStatus.CONFIRMED, decay: float = 0.0, **where: int
) -> TransferCandidate:
    arguments = {"lr": lr, "betas": [0.9, 0.99], "grafting": "adam", **({"weight_decay": decay} if decay else {})}
    config = TunedConfig("shampoo", arguments, {"warmup_fraction": 0.05})
    return TransferCandidate(config, Source(SourceKind.STORE, "mine", status=status), situation(**where))  # type: ignore[arg-type]


def adapters(width: int, num_blocks: int = 2) -> Situation:
    """The situation of adapters of a GPT-2's layers, as `service.transfer.adapters` measured the smallest."""
    sides = [(width, width), (3 * width, width), (4 * width, width), (width, 4 * width)]
    factors = [shape for outputs, inputs in sides for shape in ((outputs, 8), (8, inputs))]
    shape = ModelShape(tuple(ParameterShape("adapter", one, num_blocks) for one in factors))
    return Situation.of(shape, batch_size=32, num_steps=40, workload=None)


PATIENCE_SECONDS = 600.0


def ask_ahead(monkeypatch: pytest.MonkeyPatch, body: dict[str, Any]) -> None:
    """Caches the common answer of the shipped table's models for a request with this body. On a busy machine its
    process may take longer than requests wait, and they would be answered without it."""
    wanted = UntunedQuestion.model_validate(body).wanted
    question = question_of(wanted.target, wanted.members)
    assert question is not None, "no model of the table is near"
    with monkeypatch.context() as patch:
        patch.setattr(asking, "POOL_SECONDS", PATIENCE_SECONDS)
        found = ask_pooled(question)
    assert isinstance(found, PooledAnswers), found
