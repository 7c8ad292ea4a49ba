"""Files the pages load: our own, and the plotly.min.js that plotly's wheel ships. Nothing comes from another host."""

from __future__ import annotations

import importlib.util
from importlib.metadata import version
from os import PathLike, stat_result
from pathlib import Path

from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope

STATIC = Path(__file__).parent / "static"
PLOTLY_PATH = f"/vendor/plotly-{version('plotly')}"


class _CachedFiles(StaticFiles):
    """Static files with a `Cache-Control` header."""

    def __init__(self, directory: Path, cache_control: str) -> None:
        super().__init__(directory=directory)
        self._cache_control = cache_control

    def file_response(
        self, full_path: str | PathLike[str], stat_result: stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers["Cache-Control"] = self._cache_control
        return response


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
    own = _CachedFiles(STATIC, "no-cache")
    plotly = _CachedFiles(plotly_directory(), "public, max-age=31536000, immutable")
    return [("/static", own), (PLOTLY_PATH, plotly)]
