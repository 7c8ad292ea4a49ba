"""Settings of a process: read once from the environment at start, frozen, passed down."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import platformdirs
from pydantic import Field, field_serializer, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from service.hosts import ANY_HOST, DEFAULT_PORT, THIS_MACHINE, host_in_one_spelling, pattern_in_one_spelling
from trainers.storage import Place, place_of

ENV_PREFIX = "SHAMPOO_TUNER_"


class Settings(BaseSettings):
    """Each field is read from `SHAMPOO_TUNER_<FIELD>`, e.g. `SHAMPOO_TUNER_DATABASE_URL`."""

    # An input may hold a secret; the command line shows one without.
    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True, extra="forbid", hide_input_in_errors=True)

    data_dir: Path = Field(default_factory=lambda: Path(platformdirs.user_data_dir("shampoo-tuner")))
    """Holds the embedded database, checkpoints and logs. Shared between workers in production."""
    checkpoint_directory: str | None = None
    """The place of trials' checkpoints: a path that all machines see, or the URI of a store of `pyarrow.fs`, e.g.
    `s3://bucket/prefix?region=eu-west-1`, with its credentials in the environment of workers and of the Ray cluster;
    None: `checkpoints` in `data_dir`."""
    database_url: str | None = None
    """SQLAlchemy URL, `sqlite:///...` or `postgresql+psycopg://...`; None: a SQLite file in `data_dir`."""
    database_connections: int = Field(default=20, ge=1)
    """Requests of an API process that use the database at once, each on a connection and a thread of its own; others
    wait for their turn. With one more each for its probe and its metrics, so many connections are what each API process
    opens at most, and a worker with its run takes a few: all of them together must stay below the `max_connections` of
    a PostgreSQL server, 100 unless it was raised."""
    host: str = "127.0.0.1"
    port: int = Field(default=DEFAULT_PORT, ge=0, le=65535)
    """0: any free port."""
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = ()
    """Names by which the service may be asked beside this machine's own (localhost, 127.0.0.1, [::1]) and a `host` that
    is one name or address; separated by commas, without ports: `tuner.example.org,10.0.0.7`. Any other `Host` is
    refused with 421. `*.example.org` allows every name below that one; `*` allows all: then any web page that someone
    on this network opens can use the service, by a name that its author points here (DNS rebinding)."""
    ray_address: str | None = None
    """A running Ray cluster; None: each job starts a local one. `RAY_ADDRESS` is honoured too."""
    lease_seconds: float = Field(default=30.0, gt=0)
    """A worker that has not renewed a job's lease for this long has lost the job."""
    poll_seconds: float = Field(default=0.5, gt=0)
    """Seconds between two looks of a worker for jobs, and of a job's run for what is asked of it."""
    allow_module_workloads: bool | None = None
    """True if a job may name its workload as `module:Class`, which the service then imports from its packages and
    directory; None: if `host` is this machine alone (127.0.0.1, ::1 or localhost) and `allowed_hosts` names no other,
    as a proxy's. Registered workloads are always allowed."""
    thin_after_days: float | None = Field(default=None, gt=0)
    """So many days after a job's end, workers thin its history: trials that no answer rests on keep about thirty
    measurements each, and the events of trials are deleted. None: all is kept."""
    device_hour_prices: dict[str, float] = Field(default_factory=dict)
    """The price of a device-hour by kind of node, as JSON: `{"gpu": 2.5, "cpu": 0.04, "h100": 4}`. A job's kind is that
    of its `custom_resources` which has a price here, or else `gpu` or `cpu`. It keeps the price it was submitted at."""
    currency: str = Field(default="EUR", pattern="^[A-Z]{3}$")
    """The code of the currency of prices."""
    log_format: Literal["auto", "text", "json"] = "auto"
    """How processes write their logs: lines for a person, or JSON for programs; `auto`: lines on a terminal and in the
    logs of jobs, which people read, else JSON."""
    log_requests: bool = False
    """True: the API logs each request that it answers."""
    max_request_bytes: int = Field(default=1_000_000, gt=0)
    """A larger request body is refused with 413."""

    @field_validator("allowed_hosts", mode="before")
    @classmethod
    def _are_hosts(cls, value: str | Iterable[str]) -> tuple[str, ...]:
        given = value.split(",") if isinstance(value, str) else value
        found = {text.strip(): pattern_in_one_spelling(text.strip()) for text in given if text.strip()}
        for text, host in found.items():
            if host is None:
                raise ValueError(
                    f"{text!r} is no host: must be a name, *.NAME, an IP address or {ANY_HOST}, without scheme and port"
                )
        return tuple(host for host in found.values() if host is not None)

    @field_serializer("allowed_hosts")
    def _written_hosts(self, hosts: tuple[str, ...]) -> str:
        return ",".join(hosts)

    @field_validator("device_hour_prices")
    @classmethod
    def _are_prices(cls, prices: dict[str, float]) -> dict[str, float]:
        for kind, price in prices.items():
            if not (math.isfinite(price) and price > 0):
                raise ValueError(f"the price of {kind!r} must be above 0, got {price:g}")
        return prices

    @field_serializer("device_hour_prices")
    def _written_prices(self, prices: dict[str, float]) -> str:
        return json.dumps(prices)

    @field_validator("checkpoint_directory")
    @classmethod
    def _names_a_place(cls, value: str | None) -> str | None:
        if not value:  # as of a variable that is set to nothing
            return None
        place_of(value)
        return value

    @property
    def is_bound_to_all_addresses(self) -> bool:
        """True if `host` is no single address: the service can be reached by names that it does not know."""
        return host_in_one_spelling(self.host) in (None, "0.0.0.0", "::")

    @property
    def answered_hosts(self) -> tuple[str, ...]:
        """Every host that the service answers to: this machine's names, `host` if it is one, and `allowed_hosts`."""
        own = None if self.is_bound_to_all_addresses else host_in_one_spelling(self.host)
        return tuple(dict.fromkeys((*THIS_MACHINE, *([own] if own else []), *self.allowed_hosts)))

    @property
    def cluster_address(self) -> str | None:
        """The address of the Ray cluster to use, if there is one; None: a run starts a local one."""
        return self.ray_address or os.environ.get("RAY_ADDRESS") or None

    @property
    def checkpoint_place(self) -> Place:
        """`checkpoint_directory`, or the directory in `data_dir`; a path is absolute."""
        if self.checkpoint_directory is None:
            return self.data_dir / "checkpoints"
        place = place_of(self.checkpoint_directory)
        return place.expanduser().absolute() if isinstance(place, Path) else place

    @property
    def resolved_database_url(self) -> str:
        """`database_url`, or the embedded SQLite file."""
        return self.database_url or f"sqlite:///{self.data_dir / 'shampoo-tuner.sqlite3'}"

    @property
    def module_workloads_are_allowed(self) -> bool:
        """`allow_module_workloads`, or whether only this machine can ask."""
        if self.allow_module_workloads is not None:
            return self.allow_module_workloads
        return not self.is_bound_to_all_addresses and set(self.answered_hosts) <= set(THIS_MACHINE)

    def to_environment(self) -> dict[str, str]:
        """The environment variables from which another process reads these settings."""
        values = self.model_dump(mode="json", exclude_none=True)
        return {f"{ENV_PREFIX}{name.upper()}": str(value) for name, value in values.items()}
