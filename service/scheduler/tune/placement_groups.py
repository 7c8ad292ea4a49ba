"""The gangs that Ray Tune has for a job: placement groups with their trainables, in use, kept warm or asked for.

Tune keeps these to itself. It has no public way to tell them, nor to let a warm one go that another job waits for.
"""

from __future__ import annotations

from typing import Any

import ray
from ray.util import placement_group_table


class TuneGangs:
    """Reads and releases the gangs of the Tune controller that it is attached to; before that there are none."""

    def __init__(self) -> None:
        self._controller: Any = None

    def attach(self, controller: Any) -> None:
        """Takes the controller out of the wrapper that Tune's schedulers get."""
        self._controller = controller._tune_controller

    def count(self) -> tuple[int, int]:
        """How many it holds, idle ones included, without those that are being released; and how many Ray has been
        asked for and has not placed yet.
        """
        if self._controller is None:
            return 0, 0
        actors = self._controller._actor_manager
        resources = actors._resource_manager
        live = [a for a in actors._live_actors_to_ray_actors_resources if a not in self._controller._stopping_actors]
        ready = sum(map(len, resources._request_to_ready_pgs.values()))
        asked_for = [group for groups in resources._request_to_staged_pgs.values() for group in groups]
        # Tune hears of a placed one only after a process has started in it, which takes seconds.
        placed = sum(placement_group_table(group)["state"] == "CREATED" for group in asked_for)
        return len(live) + ready + placed, len(asked_for) - placed

    @property
    def has_idle(self) -> bool:
        """Whether it keeps a gang whose trial has ended, and that is not yet meant for one which Tune has already."""
        controller = self._controller
        return controller is not None and controller._actor_cache.num_cached_objects > len(controller._pending_trials)

    def release_idle(self) -> None:
        """Ends the ranks of one idle gang, if there is any, and gives its resources back, within seconds."""
        cache = self._controller._actor_cache
        gang = next(
            (cache.pop_cached_object(key) for key in list(cache._cached_objects) if cache.has_cached_object(key)), None
        )
        if gang is not None:
            gang.set_on_stop(None)  # no trial is to hear of its end
            gang.set_on_error(None)
            self._controller._remove_actor(tracked_actor=gang)

    def end(self) -> None:
        """Ends all of them at once, whatever their ranks do: Ray ends those with the trainable that owns them."""
        if self._controller is not None:
            for actor, _ in self._controller._actor_manager._live_actors_to_ray_actors_resources.values():
                ray.kill(actor)

    def turn(self) -> None:
        """Does what Tune's loop stops doing while no trial is in it, but for the trials: it sees gangs off."""
        controller = self._controller
        if controller is not None and not (controller._pending_trials or controller._running_trials):
            controller._actor_manager.next(timeout=0)
            controller._cleanup_stopping_actors()
