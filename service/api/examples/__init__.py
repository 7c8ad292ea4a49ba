"""Examples of every request and response, as the documentation shows them. Tests hold them against the schemas.

No schema is declared here, and no code but the documentation reads them.
"""

from service.api.examples.access import PROJECT, PROJECT_CHANGE, PROJECT_CREATE, TOKEN, TOKEN_CREATE, TOKEN_TEXT
from service.api.examples.catalogue import (
    AUDIT_ENTRY,
    PROBLEM,
    SEARCH_SPACE,
    WORKLOAD,
)
from service.api.examples.external import (
    DECISION,
    END_CREATE,
    JOB_CREATE_EXTERNAL,
    REPORT_CREATE,
    SUGGESTION,
    SUGGESTION_CREATE,
)
from service.api.examples.files import CHECKPOINT, CODE, CODE_ITEM, EXPORTS, OUTPUT, OUTPUT_STREAM
from service.api.examples.insights import INSIGHTS, JOB_HEALTH
from service.api.examples.jobs import (
    EVENT,
    EVENT_STREAM,
    JOB,
    JOB_CHANGE,
    JOB_CREATE,
    JOB_CREATE_OWN_SPACE,
    JOB_CREATE_SEARCHED_BATCH,
    JOB_CREATE_TOKENS,
    JOB_ESTIMATE,
    JOB_IDS,
    JOB_OUTCOMES,
    JOB_PATCH,
    MEASUREMENTS,
    TRIAL,
    TRIAL_CHANGE,
    TRIAL_CONFIG_TO_PASTE,
    TRIAL_CREATE,
)
from service.api.examples.recommendations import (
    RECOMMENDATION,
)
from service.api.examples.untuned import UNTUNED_ANSWER, UNTUNED_QUESTION
from service.api.examples.webhooks import DELIVERY, WEBHOOK, WEBHOOK_CREATE, WEBHOOK_SECRET

__all__ = [
    "AUDIT_ENTRY",
    "CHECKPOINT",
    "CODE",
    "CODE_ITEM",
    "DECISION",
    "DELIVERY",
    "END_CREATE",
    "EVENT",
    "EVENT_STREAM",
    "EXPORTS",
    "INSIGHTS",
    "JOB",
    "JOB_CHANGE",
    "JOB_CREATE",
    "JOB_CREATE_EXTERNAL",
    "JOB_CREATE_OWN_SPACE",
    "JOB_CREATE_SEARCHED_BATCH",
    "JOB_CREATE_TOKENS",
    "JOB_ESTIMATE",
    "JOB_HEALTH",
    "JOB_IDS",
    "JOB_OUTCOMES",
    "JOB_PATCH",
    "MEASUREMENTS",
    "OUTPUT",
    "OUTPUT_STREAM",
    "PROBLEM",
    "PROJECT",
    "PROJECT_CHANGE",
    "PROJECT_CREATE",
    "RECOMMENDATION",
    "REPORT_CREATE",
    "SEARCH_SPACE",
    "SUGGESTION",
    "SUGGESTION_CREATE",
    "TOKEN",
    "TOKEN_CREATE",
    "TOKEN_TEXT",
    "TRIAL",
    "TRIAL_CHANGE",
    "TRIAL_CONFIG_TO_PASTE",
    "TRIAL_CREATE",
    "UNTUNED_ANSWER",
    "UNTUNED_QUESTION",
    "WEBHOOK",
    "WEBHOOK_CREATE",
    "WEBHOOK_SECRET",
    "WORKLOAD",
]
