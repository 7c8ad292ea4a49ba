"""Words for what Ray tells in its own."""

from __future__ import annotations

import pytest
from ray.exceptions import ActorDiedError

from service.scheduler.cluster.ray_internals import death_in_words

NAMES = "\tclass_name: Rank\n\tactor_id: e2f4\n\tpid: 28563\n\tname: rank-1\n\tnamespace: a/job\n\tip: 192.0.2.2"


def test_a_death_is_one_line_without_the_names_of_the_actor() -> None:
    killed = (
        f"{ActorDiedError.BASE_ERROR_MSG}\n{NAMES}\nThe actor is dead because its worker process has died. Worker exit "
        "type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file. "
        "Some common causes include: (1) the process was killed by the OOM killer\nresource isolation and (2) more"
    )
    said = death_in_words(killed)
    assert said.startswith("process 28563 on 192.0.2.2: it ended without a word, as by the kernel for memory")
    assert not [part for part in ("\n", "\t", "actor", "OOM", "Ray") if part in said]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            f"{ActorDiedError.BASE_ERROR_MSG}\n{NAMES}\nThe actor is dead because its node has died. Node Id: 7f",
            "process 28563 on 192.0.2.2: The actor is dead because its node has died. Node Id: 7f",
        ),
        (ActorDiedError.BASE_ERROR_MSG, "Ray does not say of what"),
        ("The actor 7f is unavailable: no route. The task may", "The actor 7f is unavailable: no route. The task may"),
    ],
    ids=["node", "no cause", "unavailable"],
)
def test_other_causes_stay_as_ray_tells_them(text: str, said: str) -> None:
    assert death_in_words(text) == said
