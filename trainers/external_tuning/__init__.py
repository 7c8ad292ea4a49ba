"""AlgoPerf's external-tuning protocol on workloads of this package: goals, submissions, studies, runs and their score.

    python -m trainers.external_tuning.run_studies runs.jsonl --submissions shampoo adamw --workloads digits-mlp

A *submission* is a search space, or a list of five points. A *goal* is a value of a validation metric of a workload and
the most steps in which to reach it. A *study* tries five points: those of the list, or others in each study that a
Sobol sequence draws from the space; the first of a study to reach the goal counts. A workload is scored by the median
over five studies, which is finite if three of them reach the goal. `scoring` makes performance profiles of that.

Source: the rules of AlgoPerf's external tuning track (mlcommons, algorithmic-efficiency; arXiv:2306.07179, section 4).
Departures: budgets are steps alone, as trials run on whatever machine there is, and there are no held-out variants.

Never here: how a service searches, which is `service.scheduler`'s, and what is worth trying, which is
`search_spaces`'.
"""
