"""The search of jobs for any Optuna study: `AutoSampler`. It needs neither Ray nor a database."""

from service.scheduler.policy.searching.sampling.auto_sampler import AutoSampler

__all__ = ["AutoSampler"]
