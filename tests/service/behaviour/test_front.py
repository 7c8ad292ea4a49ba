"""A real job with several objectives, from its submission to a config of its front."""

from __future__ import annotations

import socket
from contextlib import closing

import httpx
import pytest

from service.api.schemas.jobs import JobRead
from service.client import Client
from service.domain import DeliveryState, Direction, JobState, Phase, TrialState
from service.evidence.in_words.words import evidence_lines
from service.evidence.pareto_front import dominates
from service.specification.job import JobSpecification
from tests.support.service.answers import assert_measured, train_with_snippet
from tests.support.service.live import running
from tests.support.service.service_process import ServiceProcesses
from tests.support.service.webhooks import Receiver
from tests.support.waiting import LONG_PATIENCE_SECONDS, PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.patient

OBJECTIVES = {"validation_loss": Direction.MINIMIZE, "optimizer_state_bytes": Direction.MINIMIZE}


def test_a_job_finds_its_front_and_gives_a_config_of_it(shared_service: ServiceProcesses) -> None:
    # TPE draws the first at random.
    specification = {
        "workload": {"name": "digits-mlp"},
        "search_space": {
            "optimizer": "shampoo",
            "parameters": [
                {"type": "float", "name": "lr", "low": 1e-4, "high": 1e-2, "scale": "log"},
                {"type": "integer", "name": "max_preconditioner_dim", "low": 8, "high": 128, "scale": "log"},
            ],
        },
        "objectives": [{"metric": "validation_loss"}, {"metric": "optimizer_state_bytes"}],
        "budget": {"num_trials": 10},
        "training": {"num_steps": 20, "evaluate_every": 10},
        "baseline": None,
        "confirmation": None,
        "resources": {"parallel_trials": 1},
    }
    receiver = Receiver()
    with (
        closing(receiver),
        running(shared_service.database, data_are_here=True, webhook_private_addresses=True) as url,
        Client(url) as client,
    ):
        job: JobRead = client.submit(JobSpecification.model_validate(specification), model="my-mlp")
        webhook = client.add_webhook(receiver.url, kinds=["job.state"], job_id=job.id)
        job = client.wait(job.id, timeout_seconds=LONG_PATIENCE_SECONDS)
        assert job.state is JobState.SUCCEEDED, job.failure
        # Told by the worker, before and after the run.
        shared_service.wait_for("the last message", lambda: "succeeded" in receiver.told())
        assert {"queued", "running", "succeeded"} <= set(receiver.told())
        wait_until(
            lambda: {each.state for each in client.deliveries(webhook.id)} == {DeliveryState.DELIVERED},
            "the answers' record",
        )
        client.remove_webhook(webhook.id)
        trials = list(client.trials(job.id))
        recommendation = client.recommendation(job.id)
        by_model = client.recommendations(model="my-mlp")
        like_it = client.estimate({**specification, "pinned": ["winners"]})
        wider = {"name": "digits-mlp", "options": {"hidden_sizes": [200]}}
        unlike_it = client.estimate({**specification, "workload": wider, "pinned": ["winners"]})
        config = client.trial_config(job.id, job.progress.front[-1].number)
        page = httpx.get(f"{url}/jobs/{job.id}", trust_env=False, timeout=PATIENCE_SECONDS, verify=False).text
        of_trial = httpx.get(
            f"{url}/jobs/{job.id}/trials/0", trust_env=False, timeout=PATIENCE_SECONDS, verify=False
        ).text

    for trial in trials:
        assert trial.step == trial.num_steps == 20
        assert_measured(trial.metrics, "digits-mlp")
    train_with_snippet(recommendation.python, "digits-mlp", {})
    assert [each.id for each in by_model] == [recommendation.id]  # whatever other tests have found for this model
    assert {trial.fingerprint for trial in trials} == {recommendation.key.fingerprint}
    assert None not in (recommendation.key.fingerprint, recommendation.key.data_digest)
    assert recommendation.environment is not None
    assert (recommendation.environment.device, recommendation.environment.world_size) == ("cpu", 1)
    assert f"<dt>trained on</dt><dd>{socket.gethostname()}, CPU</dd>" in of_trial
    # What the API's process says of a model is what a rank said of it.
    assert job.id in [winner.job_id for winner in like_it.winners[Phase.SEARCH]]  # others may have tuned it, too
    assert unlike_it.winners == {Phase.SEARCH: []}
    assert {trial.state for trial in trials} == {TrialState.COMPLETED}  # none is pruned
    values = {trial.number: tuple(float(trial.metrics[name] or 0) for name in OBJECTIVES) for trial in trials}
    directions = tuple(OBJECTIVES.values())
    best = {own for own in values.values() if not any(dominates(other, own, directions) for other in values.values())}
    front = job.progress.front
    assert [tuple(point.values[name] for name in OBJECTIVES) for point in front] == sorted(best)
    assert all(tuple(point.values[name] for name in OBJECTIVES) == values[point.number] for point in front)
    assert recommendation.evidence.front == front
    optimizer = trials[front[-1].number].config["optimizer"]
    assert isinstance(optimizer, dict)
    assert config.config == optimizer["arguments"]
    assert f"the config of trial {front[-1].number}" in config.python
    assert page.count('as JSON">JSON</a>') == len(front)
    lines = evidence_lines(recommendation.evidence)
    assert any(line.startswith(f"  trial {front[0].number}") and "validation_loss" in line for line in lines)
