"""Routes that answer from one thread: a request that reads is worked on, written as JSON and parted from its session in
the same one.

FastAPI gives a function a thread for the endpoint, another one for the check of what it returns, and each dependency
that opens or closes something two more. Passing a request from thread to thread costs more than most of them do.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from fastapi import Response
from fastapi.routing import APIRoute
from pydantic import TypeAdapter

from service.store.session import Session


class OneThreadRoute(APIRoute):
    """A route that answers from one thread if it reads: by a function of GET that sets no headers of its own."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        reads = options.get("methods") in (["GET"], {"GET"}) and not inspect.iscoroutinefunction(endpoint)
        sets_headers = any(
            parameter.annotation in (Response, "Response")
            for parameter in inspect.signature(endpoint).parameters.values()
        )
        super().__init__(path, self._whole(endpoint) if reads and not sets_headers else endpoint, **options)

    def _whole(self, endpoint: Callable[..., Any]) -> Callable[..., Any]:
        """The endpoint with the end of its session and the JSON of what it returns."""

        @functools.wraps(endpoint)
        def answer(**arguments: Any) -> Any:
            try:
                found = endpoint(**arguments)
            finally:
                for argument in arguments.values():
                    if isinstance(argument, Session):
                        argument.close()
            if isinstance(found, Response) or self._adapter is None:
                return found
            return Response(self._adapter.dump_json(found, by_alias=True), media_type="application/json")

        return answer

    @functools.cached_property
    def _adapter(self) -> TypeAdapter[Any] | None:
        return None if self.response_model is None else TypeAdapter(self.response_model)
