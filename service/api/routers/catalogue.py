"""The workloads and search spaces that a job can be made of."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Response

from search_spaces import presets
from search_spaces.nearest import nearest_first
from service.api import problems
from service.api.conditional import UNCHANGEABLE, TaggedDependency
from service.api.one_thread import OneThreadRoute
from service.api.preparation import PreparationsDependency, job_expected
from service.api.schemas.catalogue import SearchSpaceList, SearchSpaceRead, WorkloadList, WorkloadRead
from service.errors import UnknownName
from service.specification.workloads import known_workloads

router = APIRouter(prefix="/v1", tags=["catalogue"], route_class=OneThreadRoute, dependencies=[Depends(job_expected)])


@router.get(
    "/workloads",
    summary="List workloads",
    response_model=WorkloadList,
    responses={**UNCHANGEABLE, **problems.documented(422, 503)},
)
async def list_workloads(preparations: PreparationsDependency, tagged: TaggedDependency) -> Response:
    """The workloads that can be tuned: built-in ones and those of installed packages. A job may name your class."""
    found = await preparations.do("the installed workloads", known_workloads)
    return tagged.answer(WorkloadList(items=[WorkloadRead.of(description) for description in found]))


@router.get(
    "/search-spaces",
    summary="List search spaces",
    response_model=SearchSpaceList,
    responses={**UNCHANGEABLE, **problems.documented(422)},
)
def list_search_spaces(tagged: TaggedDependency) -> Response:
    """The presets; a job can also bring a space of its own."""
    found = [SearchSpaceRead.of(name, space) for name, space in sorted(presets().items())]
    return tagged.answer(SearchSpaceList(items=found))


@router.get(
    "/search-spaces/{name}",
    summary="Read a search space",
    response_model=SearchSpaceRead,
    responses={**UNCHANGEABLE, **problems.documented(404, 422)},
)
def read_search_space(
    tagged: TaggedDependency,
    name: Annotated[str, Path(description="The name of the preset.", examples=["shampoo"])],
) -> Response:
    """A preset with its ranges, and why they are what they are. 404 lists the presets there are if none has the
    name."""
    space = presets().get(name)
    if space is None:
        raise UnknownName("search space", name, nearest_first(name, presets()))
    return tagged.answer(SearchSpaceRead.of(name, space))
