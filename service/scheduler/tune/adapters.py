"""The objects that Ray Tune is given for a job, put together: searcher, pruner, recorder, and share of a cluster."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ray import tune

from service.domain import Phase
from service.scheduler.cluster.group_size import GroupSize
from service.scheduler.cluster.ray_internals import TuneRankGroups
from service.scheduler.kept_weights import WeightsPlaces
from service.scheduler.output.files import OutputPlaces
from service.scheduler.policy.decisions import Decisions
from service.scheduler.policy.feasibility import Feasibility
from service.scheduler.policy.protocol import Policy
from service.scheduler.policy.retries import Retries
from service.scheduler.policy.time_limit import Pace
from service.scheduler.tune.journal import Journal
from service.scheduler.tune.judgement import Judgement
from service.scheduler.tune.open_trials import OpenTrials
from service.scheduler.tune.orders import Orders
from service.scheduler.tune.pruner import PolicyPruner
from service.scheduler.tune.recorder import Recorder
from service.scheduler.tune.run_end import Signals
from service.scheduler.tune.searcher import PolicySearcher
from service.scheduler.tune.sharing import Sharing
from service.specification.planning import JobPlan
from trainers.data.roots import DataRoots


@dataclass(frozen=True, slots=True)
class TuneAdapters:
    """The objects through which Tune runs a job."""

    searcher: PolicySearcher
    pruner: PolicyPruner
    recorder: Recorder
    sharing: Sharing | None

    @property
    def callbacks(self) -> list[tune.Callback]:
        return [self.recorder] if self.sharing is None else [self.recorder, self.sharing]


def adapters_of(
    plan: JobPlan,
    policy: Policy,
    journal: Journal,
    trials: OpenTrials,
    signals: Signals,
    *,
    size: GroupSize,
    retries: Retries | None = None,
    feasibility: Feasibility | None = None,
    groups: TuneRankGroups | None = None,
    sharing: Sharing | None = None,
    data_roots: DataRoots | None = None,
    output: OutputPlaces | None = None,
    weights: WeightsPlaces | None = None,
) -> TuneAdapters:
    """The adapters of one run.

    Args:
        retries: knows of the failures of earlier runs; None: there were none.
        feasibility: judges trials before they are first launched; None: all are feasible.
        groups: to be attached to Tune.
        sharing: says when a trial may start; None: whenever the policy has one, because the cluster is this job's.
        data_roots: the directories that trials may read; None: all that their ranks may.
        output: where ranks write what they print; None: it is not kept.
        weights: where the weights of the trials of the confirmation lie; None: they are not kept.
    """
    feasibility = feasibility or Feasibility()
    constraints = plan.specification.constraints
    decisions = Decisions(
        policy,
        metrics=[objective.metric for objective in plan.objectives],
        bounded=[constraint.metric for constraint in constraints],
    )
    pruner = PolicyPruner(
        decisions,
        constraints=constraints,
        is_to_stop=lambda number: number in signals.to_stop(),
        groups=groups,
    )
    judgement = Judgement(plan, trials, decisions, retries or Retries(), feasibility)
    num_confirming = plan.allotments.get(Phase.CONFIRMATION, 0)
    pace = Pace(plan.length.whole, num_confirming=num_confirming, clock=time.monotonic)
    recorder = Recorder(plan, journal, trials, judgement, policy, signals, pace)
    orders = Orders(
        plan,
        journal,
        trials,
        signals,
        size=size,
        feasibility=feasibility,
        data_roots=data_roots,
        output=output,
        weights=weights,
    )
    searcher = PolicySearcher(policy, orders, sharing=sharing, recall=recorder.recall)
    return TuneAdapters(searcher, pruner, recorder, sharing)
