"""Jobs as studies of Optuna's, read-only and live. What a job does is never decided here, and nothing is written."""

from __future__ import annotations

from service.optuna_storage.job_storage import JobStorage, NoDatabase, StudyIsReadOnly

__all__ = ["JobStorage", "NoDatabase", "StudyIsReadOnly"]
