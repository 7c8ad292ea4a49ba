"""Files the pages load: our own, and a part of the plotly.min.js in plotly's wheel. Nothing comes from another host."""

from __future__ import annotations

import functools
import gzip
import importlib.util
import logging
from importlib.metadata import version
from os import PathLike, fspath, stat_result
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from service.dashboard.plotly_part import cut

STATIC = Path(__file__).parent / "static"
PLOTLY_KINDS = ("heatmap",)
"""The traces that our figures have, beside lines and points."""
PLOTLY_PATH = f"/vendor/plotly-{version('plotly')}"
PLOTLY_FILE = f"{'-'.join(['scatter', *PLOTLY_KINDS])}.min.js"
"""Browsers keep it for a year: with other kinds it has another name."""

_logger = logging.getLogger(__name__)


class CachedFiles(StaticFiles):
    """Static files with a `Cache-Control` header, compressed once for all who take gzip."""

    def __init__(self, directory: Path, cache_control: str) -> None:
        super().__init__(directory=directory)
        self._cache_control = cache_control

    def file_response(
        self, full_path: str | PathLike[str], stat_result: stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers["Cache-Control"] = self._cache_control
        if not isinstance(response, FileResponse) or "gzip" not in Headers(scope=scope).get("accept-encoding", ""):
            return response
        content = _compressed(fspath(full_path), stat_result.st_mtime_ns)
        of_file = ("content-length", "accept-ranges")
        headers = {name: value for name, value in response.headers.items() if name not in of_file}
        return Response(content, headers={**headers, "Content-Encoding": "gzip", "Vary": "Accept-Encoding"})


@functools.cache
def _compressed(path: str, modified_ns: int) -> bytes:  # noqa: ARG001 # part of the key
    """The content of a file that was last modified at that time."""
    return gzip.compress(Path(path).read_bytes(), compresslevel=6, mtime=0)


class PlotlyPart:
    """The one script that the pages have of Plotly, cut and compressed when it is first asked for."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not scope["path"].endswith(f"/{PLOTLY_FILE}"):
            raise HTTPException(404)
        headers = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
        script = await run_in_threadpool(_plotly)  # beside other requests: it takes a quarter of a core-second
        if "gzip" in Headers(scope=scope).get("accept-encoding", ""):
            headers["Content-Encoding"] = "gzip"
        else:
            script = gzip.decompress(script)
        await Response(script, media_type="text/javascript", headers=headers)(scope, receive, send)


@functools.cache
def _plotly() -> bytes:
    """The script, compressed."""
    source = (plotly_directory() / "plotly.min.js").read_text(encoding="utf-8")
    try:
        script = cut(source, PLOTLY_KINDS)
    except ValueError as error:
        _logger.warning("pages load all of Plotly, which keeps browsers busy for a second: %s", error)
        script = source
    return gzip.compress(script.encode(), compresslevel=6, mtime=0)


def plotly_directory() -> Path:
    """The directory of plotly.min.js in plotly's wheel. Found without importing plotly, which would load much."""
    spec = importlib.util.find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("plotly is not installed; the dashboard draws with the plotly.min.js of its wheel")
    return Path(spec.submodule_search_locations[0]) / "package_data"


def static_mounts() -> list[tuple[str, ASGIApp]]:
    """(path, application) of everything static, to be mounted beside the router.

    Our own files are revalidated on each visit. Plotly is kept for a year, as its path holds its version.
    """
    return [("/static", CachedFiles(STATIC, "no-cache")), (PLOTLY_PATH, PlotlyPart())]
