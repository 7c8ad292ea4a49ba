"""Files the pages load: our own, and the plotly.min.js that plotly's wheel ships. Nothing comes from another host."""

from __future__ import annotations

import functools
import gzip
import importlib.util
from importlib.metadata import version
from os import PathLike, fspath, stat_result
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope

STATIC = Path(__file__).parent / "static"
PLOTLY_PATH = f"/vendor/plotly-{version('plotly')}"


class CachedFiles(StaticFiles):
    """Static files with a `Cache-Control` header, compressed once for all who take gzip: Plotly takes a third of a
    core-second.
    """

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


def plotly_directory() -> Path:
    """The directory of plotly.min.js in plotly's wheel. Found without importing plotly, which would load much."""
    spec = importlib.util.find_spec("plotly")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("plotly is not installed; the dashboard draws with the plotly.min.js of its wheel")
    return Path(spec.submodule_search_locations[0]) / "package_data"


def static_mounts() -> list[tuple[str, ASGIApp]]:
    """(path, application) of everything static, to be mounted beside the router.

    Our own files are revalidated on each visit. Plotly's 4.8 MB are kept for a year, as its path holds its version.
    """
    own = CachedFiles(STATIC, "no-cache")
    plotly = CachedFiles(plotly_directory(), "public, max-age=31536000, immutable")
    return [("/static", own), (PLOTLY_PATH, plotly)]
