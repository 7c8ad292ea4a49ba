"""All uses of private parts of Ray, as they are in Ray 2.60, each with its reason. They must be checked with every new
release, so pyproject.toml excludes newer ones.

In addition, Ray's names of files, processes and environment variables are used in `service.scheduler.disk`,
`service.scheduler.watch` and `service.scheduler.cluster.run_environment`, which must not or need not import Ray.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import ray
import ray._private.node
import ray._private.services
import ray._private.state
import ray._raylet
import ray.air._internal.usage
from ray._private import ray_constants
from ray.tune.execution import class_cache, tune_controller
from ray.util import placement_group_table

from service.scheduler.cluster import agent_start, worker_start
from trainers.retry import retry

HEARING_SECONDS = 0.05
"""Seconds at a time for which nothing else in this process can run while it waits for its cluster's head: much less
than the seconds within which a run should notice that it has to end."""
REGISTERING_SECONDS = 10.0
"""Seconds that a raylet may take to register before Ray's own waiting begins."""


class _TrainingNode(ray._private.node.Node):
    """A local cluster without dashboard, autoscaler and log monitor, which nobody uses, and with workers that start as
    `worker_start` says.

    `ray.init` has no option for that. Each of those processes is a Python interpreter that imports much of Ray, and
    Ray's start waits for the dashboard's server, even if that serves no pages.
    """

    def __init__(self, ray_params: Any, *arguments: Any, **options: Any) -> None:
        ray_params.setup_worker_path = worker_start.__file__
        super().__init__(ray_params, *arguments, **options)

    def start_api_server(self, **options: object) -> None:
        self._webui_url = ""  # Ray's value for a dashboard without pages

    def start_raylet(self, *arguments: Any, **options: Any) -> None:
        """Starts it, and waits until it is registered with the head: Ray would check that only each second."""
        super().start_raylet(*arguments, **options)
        assert self._node_id is not None, "a head names its node before it starts it"
        node, head = ray._raylet.NodeID.from_hex(self._node_id), self.get_gcs_client()  # type: ignore[no-untyped-call]
        deadline = time.monotonic() + REGISTERING_SECONDS
        while not any(head.check_alive([node])) and time.monotonic() < deadline:
            time.sleep(HEARING_SECONDS / 5)

    def start_monitor(self) -> None:
        """Starts no autoscaler."""

    def start_log_monitor(self) -> None:
        """Starts no log monitor, which would send the output of ranks to this process, which does not want it."""


_AGENTS = (ray_constants.PROCESS_TYPE_DASHBOARD_AGENT, ray_constants.PROCESS_TYPE_RUNTIME_ENV_AGENT)
_interpreter: Any = ray._private.services._build_python_executable_command_memory_profileable


def _interpreter_of(component: str, *of: Any, **options: Any) -> list[str]:
    """The command to which Ray appends the script of one of its processes and its options."""
    if component in _AGENTS:
        return [sys.executable, "-I", "-S", agent_start.__file__]
    command: list[str] = _interpreter(component, *of, **options)
    return command


class _TrainableClasses(class_cache._ActorClassCache):
    """Tune's classes of trainables, in the environment of their cluster.

    Tune would give each some variables of this process, and the agent of runtime environments would set up an
    environment for them. A local cluster inherits the environment of this process.
    """

    def get(self, trainable_cls: type) -> Any:
        if trainable_cls not in self._cache:
            self._cache[trainable_cls] = ray.remote(trainable_cls)
        return self._cache[trainable_cls]


def set_environment_of_trainables(*, is_local: bool) -> None:
    """Makes Tune start trainables in the environment of their cluster if that is this process's own; else Tune extends
    the environment."""
    controller: Any = tune_controller  # does not export what it imports
    controller._ActorClassCache = _TrainableClasses if is_local else class_cache._ActorClassCache


@contextmanager
def _replaced(module: Any, **parts: Any) -> Iterator[None]:
    """Replaces parts of a module."""
    ordinary = {name: getattr(module, name) for name in parts}
    vars(module).update(parts)
    try:
        yield
    finally:
        vars(module).update(ordinary)


@contextmanager
def only_what_trains() -> Iterator[None]:
    """Makes `ray.init` start a `_TrainingNode`, and stand-ins for its agents, as `agent_start` says."""
    with ExitStack() as stack:
        stack.enter_context(_replaced(ray._private.node, Node=_TrainingNode))
        command = {"_build_python_executable_command_memory_profileable": _interpreter_of}
        stack.enter_context(_replaced(ray._private.services, **command))
        yield


@contextmanager
def hearing_while_the_head_starts() -> Iterator[None]:
    """Makes `ray.init` wait for its head without the interpreter's lock.

    Ray holds it, for half a minute on a busy machine. Meanwhile no thread and no signal handler of this process runs,
    so the run would not notice that it has to end.
    """
    module: Any = ray._private.node  # does not export what it imports
    wait = module.wait_for_persisted_port

    def wait_bit_by_bit(*of: Any, timeout_ms: int) -> int:
        return retry(
            lambda: int(wait(*of, timeout_ms=round(HEARING_SECONDS * 1000))),
            is_temporary=lambda error: isinstance(error, RuntimeError),  # Ray raises it for a missing file
            give_up_seconds=timeout_ms / 1000,
            first_pause_seconds=HEARING_SECONDS,
            longest_pause_seconds=HEARING_SECONDS,
        )

    with _replaced(module, wait_for_persisted_port=wait_bit_by_bit):
        yield


@contextmanager
def counting_no_callbacks() -> Iterator[None]:
    """Keeps Tune from counting its callbacks for usage statistics, which are not sent.

    For these it would import each installed tracker: MLflow alone takes more than a core-second.
    """
    with _replaced(ray.air._internal.usage, tag_callbacks=lambda _callbacks: False):
        yield


def set_process_title(title: str) -> None:
    """Sets the command line that others see of this process."""
    ray._raylet.setproctitle(title)  # type: ignore[attr-defined]  # no stub names it


def free_resources_by_node() -> list[Mapping[str, float]]:
    """The free resources of each machine of the connected cluster; Ray's public API only has their sum."""
    by_node = ray._private.state.available_resources_per_node()  # type: ignore[no-untyped-call]
    return list(by_node.values())


class TuneRankGroups:
    """The rank groups that Ray Tune has for a job: placement groups with their trainables, in use, kept warm or asked
    for. There are none before `attach`.

    Tune has no public way to count them, nor to release a warm one that another job waits for.
    """

    def __init__(self) -> None:
        self._controller: Any = None

    def attach(self, controller: Any) -> None:
        """Takes the controller out of the wrapper that Tune's schedulers get."""
        self._controller = controller._tune_controller

    def count(self) -> tuple[int, int]:
        """The number of groups that it holds, including idle ones but not those that are being released; and the number
        that were requested from Ray but are not placed yet.
        """
        if self._controller is None:
            return 0, 0
        actors = self._controller._actor_manager
        resources = actors._resource_manager
        live = [a for a in actors._live_actors_to_ray_actors_resources if a not in self._controller._stopping_actors]
        ready = sum(map(len, resources._request_to_ready_pgs.values()))
        asked_for = [group for groups in resources._request_to_staged_pgs.values() for group in groups]
        # Tune learns that a group is placed only after a process has started in it, which takes seconds.
        placed = sum(placement_group_table(group)["state"] == "CREATED" for group in asked_for)
        return len(live) + ready + placed, len(asked_for) - placed

    @property
    def has_idle(self) -> bool:
        """True if it keeps a group whose trial has ended, and that is not assigned to another trial that Tune already
        has."""
        controller = self._controller
        return controller is not None and controller._actor_cache.num_cached_objects > len(controller._pending_trials)

    def release_idle(self) -> None:
        """Ends the ranks of an idle group, if there is one, and gives its resources back within seconds."""
        cache = self._controller._actor_cache
        group = next(
            (cache.pop_cached_object(key) for key in list(cache._cached_objects) if cache.has_cached_object(key)), None
        )
        if group is not None:
            group.set_on_stop(None)  # no trial should be notified of its end
            group.set_on_error(None)
            self._controller._remove_actor(tracked_actor=group)

    def node_ids(self) -> set[str]:
        """The ids of the machines with the ranks of these groups. May be called from another thread than Tune's."""
        if self._controller is None:
            return set()
        live = list(self._controller._actor_manager._live_actors_to_ray_actors_resources.values())
        tables = [placement_group_table(acquired.placement_group) for _, acquired in live]
        return {node for table in tables for node in table["bundles_to_node_id"].values() if node}

    def end(self) -> None:
        """Ends all of them at once, whatever their ranks do: Ray ends ranks together with the trainable that owns
        them."""
        if self._controller is not None:
            for actor, _ in self._controller._actor_manager._live_actors_to_ray_actors_resources.values():
                ray.kill(actor)

    def turn(self) -> None:
        """Finishes the release of rank groups, which Tune's loop only does while it has trials."""
        controller = self._controller
        if controller is not None and not (controller._pending_trials or controller._running_trials):
            controller._actor_manager.next(timeout=0)
            controller._cleanup_stopping_actors()


def death_in_words(text: str) -> str:
    """An actor's death in one line, from the text of Ray's error: without Ray's names, and without causes that do not
    apply here.

    Args:
        text: the error's text, in which each line that begins with a tab holds a name and a value.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    named = dict(line.strip().split(": ", 1) for line in lines if line.startswith("\t") and ": " in line)
    told = " ".join(line.strip() for line in lines if not line.startswith("\t"))
    where = f"process {named['pid']} on {named['ip']}: " if {"pid", "ip"} <= named.keys() else ""
    told = told.removeprefix("The actor died unexpectedly before finishing this task.").strip()
    if "Some common causes include" not in told:
        return where + (told or "Ray does not say of what")
    return (
        f"{where}it ended without a word, as by the kernel for memory, by a crash in native code, or by `os._exit`; "
        "what it printed last and the machine's kernel log tell them apart"
    )
