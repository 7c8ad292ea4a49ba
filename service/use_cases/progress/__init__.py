"""The progress of jobs, from their trials; that of ended jobs is remembered. Never estimates of the cost."""

from service.use_cases.progress.jobs import JobProgress, PhaseProgress, progress_of
from service.use_cases.progress.trials import Finding, TrialMemory

__all__ = ["Finding", "JobProgress", "PhaseProgress", "TrialMemory", "progress_of"]
