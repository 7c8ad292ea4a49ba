"""The workloads and search spaces that a job can be made of."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from search_spaces import presets
from service.api import problems
from service.api.one_thread import OneThreadRoute
from service.api.preparation import PreparationsDependency
from service.api.schemas.catalogue import SearchSpaceList, SearchSpaceRead, WorkloadList, WorkloadRead
from service.errors import NotFound
from service.specification.workloads import known_workloads

router = APIRouter(prefix="/v1", tags=["catalogue"], route_class=OneThreadRoute)


@router.get("/workloads", summary="List workloads", responses=problems.documented(503))
async def list_workloads(preparations: PreparationsDependency) -> WorkloadList:
    """The workloads that can be tuned: built-in ones and those of installed packages. A job may name your class."""
    found = await preparations.do("the installed workloads", known_workloads)
    return WorkloadList(items=[WorkloadRead.of(description) for description in found])


@router.get("/search-spaces", summary="List search spaces")
def list_search_spaces() -> SearchSpaceList:
    """The presets; a job can also bring a space of its own."""
    return SearchSpaceList(items=[SearchSpaceRead.of(name, space) for name, space in sorted(presets().items())])


@router.get("/search-spaces/{name}", summary="Read a search space", responses=problems.documented(404, 422))
def read_search_space(
    name: Annotated[str, Path(description="Of the preset.", examples=["shampoo"])],
) -> SearchSpaceRead:
    """A preset with its ranges, and why they are what they are."""
    space = presets().get(name)
    if space is None:
        raise NotFound("search space", name)
    return SearchSpaceRead.of(name, space)
