"""Configs for a model that was never tuned, from a project's recommendations and from built-in data."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from service.errors import InvalidInput
from service.evidence.in_words.standing import standing_of
from service.specification.planning import JobPlan
from service.store.models import RecommendationRow
from service.store.repositories import ModelShapeRepository, RecommendationQuery, RecommendationRepository
from service.store.session import Session
from service.transfer.candidates import Source, SourceKind, TransferCandidate, member_of, source_name
from service.transfer.pooled import NotPooled, PooledAnswers
from service.transfer.ranking import is_near, rank, rank_proxy
from service.transfer.rules import TunedConfig
from service.transfer.situation import ConfigsWanted, Situation, distance
from service.transfer.words import UntunedAnswer
from trainers.config import TrialConfig
from trainers.identity.values import ModelShape

LOOKED_AT = 500
"""The number of a project's best answers among which the nearest are moved."""
NUM_NEAREST = 40
"""The most answers that are moved, the nearest ones, by judgement: more than the number of configs that can be asked
for."""


def configs_for(
    session: Session, wanted: ConfigsWanted, pooled: PooledAnswers | NotPooled | None = None, *, project: str | None
) -> UntunedAnswer:
    """The configs to try for a model.

    Args:
        pooled: the common answers of tuned models (`asking`), or why there is none; None: it was not asked for.
        project: the project whose recommendations count; None: any.

    Raises:
        InvalidInput: `proxy_job` has no recommendation, or one of another member than is wanted, or its model has no
            known shape.
    """
    target, num_configs, proxy_job = wanted.target, wanted.num_configs, wanted.proxy_job
    if proxy_job is not None:
        row = RecommendationRepository(session).of_job(proxy_job)
        if row is None or project not in (None, row.project):
            raise InvalidInput("proxy_job", f"no job {proxy_job!r} has a recommendation here: it has to end first")
        situation = next((found for _, found in with_situations(session, [row])), None)
        if situation is None:
            raise InvalidInput("proxy_job", f"the shape of the model that {proxy_job} tuned is not known")
        (proxy,) = _candidates(row, situation, with_baselines=False)
        if wanted.member is not None and wanted.member != (tuned := member_of(proxy.config)):
            told = f"the config that {proxy_job} recommends is of {tuned or proxy.config.optimizer!r}"
            raise InvalidInput("preconditioner", f"{told}, got {wanted.member!r}")
        return UntunedAnswer(1, rank_proxy(target, proxy, num_configs=num_configs), proxy=proxy)
    candidates = stored_candidates(session, target, project=project)
    together = pooled.of_presets if isinstance(pooled, PooledAnswers) else ()
    ranked = rank(target, candidates, num_configs=num_configs, pooled=together, member=wanted.member)
    return UntunedAnswer(
        len(candidates),
        ranked,
        trains_adapters=target.features.has_adapters,
        near=[candidate for candidate in candidates if is_near(candidate, target)],
        not_pooled=pooled if isinstance(pooled, NotPooled) else None,
        member=wanted.member,
    )


def situation_of(plan: JobPlan, shape: ModelShape, *, digest: str | None = None) -> Situation:
    """The model that a job trains, and for how long.

    Args:
        shape: the shape of that model.
        digest: its fingerprint.
    """
    return Situation.of(
        shape,
        batch_size=plan.length.batch_size,
        num_steps=plan.num_steps,
        workload=plan.workload.name,
        digest=digest,
    )


def stored_candidates(
    session: Session, target: Situation, *, project: str | None, with_baselines: bool = False
) -> list[TransferCandidate]:
    """The nearest tuned models of a project whose shapes are known.

    Args:
        with_baselines: also the best of their baselines, with another optimizer.
    """
    answers = RecommendationRepository(session).find(RecommendationQuery(project=project), limit=LOOKED_AT)
    placed = sorted(
        with_situations(session, [answer.row for answer in answers]),
        key=lambda entry: distance(entry[1], target).total,
    )
    return [
        candidate
        for row, situation in placed[:NUM_NEAREST]
        for candidate in _candidates(row, situation, with_baselines=with_baselines)
    ]


def with_situations(
    session: Session, rows: Sequence[RecommendationRow]
) -> Iterator[tuple[RecommendationRow, Situation]]:
    """Recommendations with the situations that they are for; those without a known situation are left out."""
    shapes = ModelShapeRepository(session).of({row.fingerprint for row in rows if row.fingerprint is not None})
    for row in rows:
        if row.fingerprint not in shapes or row.batch_size is None or row.num_steps is None:
            continue
        yield (
            row,
            Situation.of(
                shapes[row.fingerprint],
                batch_size=row.batch_size,
                num_steps=row.num_steps,
                workload=row.workload,
                digest=row.fingerprint,
            ),
        )


def _candidates(row: RecommendationRow, situation: Situation, *, with_baselines: bool) -> Iterator[TransferCandidate]:
    recommended = row.recommended
    evidence = recommended.evidence
    source = Source(
        SourceKind.STORE,
        source_name(row.model or row.workload, recommended.workload_options, situation.batch_size),
        recommendation_id=row.id,
        job_id=row.job_id,
        status=row.status,
        standing=standing_of(evidence).word,
        metric=evidence.metric,
        direction=evidence.direction,
        value=evidence.best.value,
        num_trials=sum(evidence.num_tried.values()),
    )
    beside = ("num_steps", "batch_size")
    yield TransferCandidate(
        TunedConfig(recommended.optimizer, recommended.config, recommended.schedule),
        source,
        situation,
        training={name: value for name, value in recommended.training.items() if name not in beside},
        parameter_groups=recommended.parameter_groups,
    )
    if with_baselines and evidence.baseline is not None:
        trained = TrialConfig.from_json(evidence.baseline.config)
        yield TransferCandidate(
            TunedConfig(trained.optimizer.name, trained.optimizer.arguments, asdict(trained.schedule)),
            dataclasses.replace(source, status=None, standing=None, value=evidence.baseline.value),
            situation,
        )
