"""Settings of a process: read once from the environment at start, frozen, passed down."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import platformdirs
from pydantic import Field, ValidationInfo, ValidatorFunctionWrapHandler, field_serializer, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from service.errors import ServiceError
from service.hosts import ANY_HOST, DEFAULT_PORT, THIS_MACHINE, host_in_one_spelling, pattern_in_one_spelling
from trainers.data.roots import DataRoots
from trainers.storage import Place, place_of

ENV_PREFIX = "SHAMPOO_TUNER_"
CHECKPOINTS_KEPT_DAYS = 7.0
"""Default of the setting: time to raise a job's budget, by judgement; checkpoints can be large."""
LONGEST_SECONDS = 1e9
"""Longest time that a setting may say: neither waits nor dates can be infinite."""


def _secret(file: Path) -> str:
    """Reads the content of a file, without the newline at its end.

    Raises:
        ValueError: it cannot be read, or is empty.
    """
    try:
        secret = file.read_text().rstrip("\r\n")
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror or error}") from error
    if not secret:
        raise ValueError(f"{str(file)!r} is empty: write the secret into it, or leave this setting out")
    return secret


class NoHome(ServiceError):
    """The data directory would lie in a home, and this process has none."""


def _default_data_directory() -> Path:
    found = Path()
    # With neither HOME nor an entry for the user, as for a number in a container, platformdirs before 4.12 answers with
    # a path that begins with ~, and later with an error.
    with suppress(RuntimeError):
        found = Path(platformdirs.user_data_dir("shampoo-tuner"))
    if not found.is_absolute():
        raise NoHome(
            f"there is no home for the data directory: --data-dir or {ENV_PREFIX}DATA_DIR names another, and so does "
            "HOME"
        )
    return found


def _expanded(path: Path) -> Path:
    """Replaces a `~` at the beginning of a path.

    Raises:
        ValueError: the home that it stands for is not known.
    """
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise ValueError(f"the home in {str(path)!r} is not known") from error


def own_home() -> Path | None:
    """The home of this process's user; None: there is no HOME, and the user is a number alone."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def _given_url(url: str | None, file: Path | None) -> str | None:
    return url if file is None else _secret(file)


class Access(StrEnum):
    """The callers that are let in."""

    AUTO = "auto"
    """Anybody, where only this machine can ask and there has never been a token; else whoever has a token."""
    TOKENS = "tokens"
    """Whoever has a token."""
    OPEN = "open"
    """Anybody: something in front of the service asks who it is."""


class Settings(BaseSettings):
    """Each field is read from `SHAMPOO_TUNER_<FIELD>`, e.g. `SHAMPOO_TUNER_DATABASE_URL`."""

    # An input may hold a secret; the command line shows one without.
    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True, extra="forbid", hide_input_in_errors=True)

    data_dir: Path = Field(default_factory=_default_data_directory)
    """Holds the embedded database, checkpoints and logs. Shared between workers in production."""
    checkpoint_directory: str | None = None
    """The place of trials' checkpoints: a path that all machines see, or the URI of a store of `pyarrow.fs`, e.g.
    `s3://bucket/prefix?region=eu-west-1`, with its credentials in the environment of workers and of the Ray cluster;
    None: `checkpoints` in `data_dir`."""
    tracker_directory: Path | None = None
    """The stores of experiment trackers for jobs that ask for them, a directory for each tracker; None: `trackers` in
    `data_dir`. With MLFLOW_TRACKING_URI in the environment of a worker, `mlflow` writes there instead."""
    database_url: str | None = None
    """SQLAlchemy URL, `sqlite:///...` or `postgresql+psycopg://...`; None: a SQLite file in `data_dir`."""
    database_url_file: Path | None = None
    """A file with the `database_url`, from a secret of Docker or Kubernetes, in its place."""
    database_password_file: Path | None = None
    """A file with the password of the `database_url`, which then has none; likewise. Processes are handed on the file's
    name alone."""
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
    lease_seconds: float = Field(default=30.0, gt=0, le=LONGEST_SECONDS)
    """A worker that has not renewed a job's lease for this long has lost the job."""
    poll_seconds: float = Field(default=0.5, gt=0, le=LONGEST_SECONDS)
    """Seconds between two looks of a worker for jobs, and of a job's run for what is asked of it."""
    allow_code: bool = False
    """True if a job may name its workload or its sampler as `module:Class`, which the service then imports from its
    packages and its directory: whoever may submit jobs can then run any code of these. Registered workloads, also
    those of installed packages, are always allowed."""
    package_bytes: int = Field(default=20_000_000_000, ge=0)
    """The most that the packages take which the code of jobs requires, below `packages` in `data_dir`, those included
    that are being installed. For new ones those go that were not used for longest; where all are in use, a
    job that requires others is refused, or begins again later. 0: none are installed."""
    data_roots: Annotated[tuple[Path, ...] | None, NoDecode] = None
    """The directories that trials may read: paths in a job lie in them, links followed, and not in hidden directories
    below them; separated by colons, `/data:/mnt/sets`. None: the home of the service's user and the service's
    directory. The data directory is never one of them."""
    checkpoints_kept_days: float = Field(default=CHECKPOINTS_KEPT_DAYS, ge=0, le=36_500)
    """So many days after a job's end the checkpoints stay of trials that its budget cut off: where it gets more by
    then, they go on, else they begin again. 0: they go with the job's end. For API and workers alike."""
    thin_after_days: float | None = Field(default=None, gt=0, le=36_500)
    """Days from a job's end until workers thin its history: trials that no answer rests on keep about thirty
    measurements each, and the events of trials and what ranks printed are deleted. None: all is kept."""
    log_bytes_per_rank: int = Field(default=256 * 2**10, ge=0)
    """Kept of what a rank of a trial prints, at most: a quarter of that from its beginning, and its end. Of trials with
    more than 16 ranks less. 0: nothing is kept."""
    webhook_private_addresses: bool = False
    """True if webhooks may lead to addresses that are not public, as those of this machine and its network: whoever may
    submit jobs can then have the workers ask whatever answers there."""
    device_hour_prices: Annotated[dict[str, float], NoDecode] = Field(default_factory=dict)
    """The price of a device-hour by kind of node, as JSON: `{"gpu": 2.5, "cpu": 0.04, "h100": 4}`. A job's kind is that
    of its `custom_resources` which has a price here, or else `gpu` or `cpu`. It keeps the price it was submitted at."""
    currency: str = Field(default="EUR", pattern="^[A-Z]{3}$")
    """The code of the currency of prices."""
    log_format: Literal["auto", "text", "json"] = "auto"
    """The format of processes' logs: lines for a person, or JSON for programs; `auto`: lines on a terminal and in the
    logs of jobs, which people read, else JSON."""
    log_requests: bool = False
    """True: the API logs each request that it answers."""
    access: Access = Access.AUTO
    """`auto`: where only this machine can ask, by `host` and `allowed_hosts`, and no token was ever made, anybody is
    let in; else whoever has a token. `tokens`: always whoever has a token. `open`: anybody; for a service behind a
    proxy that asks who it is itself."""
    admin_token_file: Path | None = None
    """A file with a token, as `shampoo-tuner token generate` prints it, that has every scope: the first one, from a
    secret of Docker or Kubernetes. Read when the service starts."""
    requests_per_second: float = Field(default=50.0, ge=0, allow_inf_nan=False)
    """Requests of each token, and of each address without one, in each API process; four seconds' worth may come at
    once. Further ones are refused with 429. 0: no limit; nor is there one where anybody on this machine alone is let
    in."""
    warm_after_seconds: float | None = Field(default=None, ge=0, le=LONGEST_SECONDS)
    """Seconds from its first answer until the API starts the process, with torch in its memory, whose copies answer dry
    runs and describe workloads of your own in a second; sooner if somebody looks at what jobs are made of, or asks it,
    who then waits some seconds for it. None: at once, or where a worker starts beside it, which has more use for the
    processor, after the seconds that this imports for."""
    max_request_bytes: int = Field(default=1_000_000, gt=0)
    """A larger request body is refused with 413."""

    @field_validator("data_dir", "tracker_directory", mode="wrap")
    @classmethod
    def _is_not_given_by_nothing(
        cls, value: object, validate: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> Path | None:
        if value == "":  # as of a variable that is set to nothing: not the directory that the process happens to be in
            assert info.field_name is not None
            directory: Path | None = cls.model_fields[info.field_name].get_default(call_default_factory=True)
            return directory
        given: Path | None = validate(value)
        return None if given is None else _expanded(given)

    @field_validator("database_url_file")
    @classmethod
    def _is_instead_of_the_url(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if value is not None:
            _secret(value)
            if info.data.get("database_url") is not None:
                raise ValueError("database_url is given as well")
        return value

    @field_validator("database_password_file")
    @classmethod
    def _is_of_a_user_without_a_password(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if value is not None:
            _secret(value)
            url = _given_url(info.data.get("database_url"), info.data.get("database_url_file"))
            parts = urlsplit(url or "")
            if parts.username is None or parts.password is not None:
                raise ValueError("the database's URL must name a user, without a password")
        return value

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

    @field_validator("data_roots", mode="before")
    @classmethod
    def _are_directories(cls, value: str | Iterable[Path] | None) -> tuple[Path, ...] | None:
        if value is None:
            return None
        given = value.split(os.pathsep) if isinstance(value, str) else value
        roots = tuple(_expanded(Path(part)) for part in given if part)
        for root in roots:
            if not root.is_absolute():
                raise ValueError(f"{str(root)!r} must be an absolute path")
        return roots

    @field_serializer("data_roots")
    def _written_roots(self, roots: tuple[Path, ...] | None) -> str | None:
        return None if roots is None else os.pathsep.join(map(str, roots))

    @field_validator("device_hour_prices", mode="before")
    @classmethod
    def _are_read(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value)
        except ValueError as error:
            raise ValueError(f"is no JSON: {error}") from error

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
        if isinstance(place := place_of(value), Path):
            _expanded(place)
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
        address = self.ray_address or os.environ.get("RAY_ADDRESS") or None
        return None if address == "local" else address  # by which Ray means one that is not there yet

    @property
    def checkpoints_kept(self) -> timedelta:
        """`checkpoints_kept_days` as a duration."""
        return timedelta(days=self.checkpoints_kept_days)

    @property
    def package_place(self) -> Path:
        """The directory of the packages that the code of jobs requires; absolute."""
        return self.data_dir.absolute() / "packages"

    @property
    def data_directories(self) -> DataRoots:
        """`data_roots` as trials are told them."""
        roots = self.data_roots
        if roots is None:  # a service in a container may have `/` for a home
            roots = tuple(root for root in (own_home(), Path.cwd()) if root not in (None, Path("/")))
        closed = [self.data_dir.absolute(), *(file.absolute() for file in self.database_files)]
        if isinstance(self.checkpoint_place, Path):
            closed.append(self.checkpoint_place)
        if sys.platform == "darwin" and (home := own_home()) is not None:
            closed.append(home / "Library")  # it holds what is hidden in the home elsewhere
        return DataRoots(tuple(map(str, roots)), tuple(map(str, closed)), setting=f"{ENV_PREFIX}DATA_ROOTS")

    @property
    def tracker_place(self) -> Path:
        """`tracker_directory`, or the directory in `data_dir`; absolute."""
        return (self.tracker_directory or self.data_dir / "trackers").absolute()

    @property
    def checkpoint_place(self) -> Place:
        """`checkpoint_directory`, or the directory in `data_dir`; a path is absolute."""
        if self.checkpoint_directory is None:
            return self.data_dir / "checkpoints"
        place = place_of(self.checkpoint_directory)
        return place.expanduser().absolute() if isinstance(place, Path) else place

    @property
    def resolved_database_url(self) -> str:
        """`database_url` or what its file says, with the password of its file; or the embedded SQLite file."""
        url = _given_url(self.database_url, self.database_url_file)
        if url is not None and self.database_password_file is not None:
            parts = urlsplit(url)
            user, _, place = parts.netloc.rpartition("@")
            password = quote(_secret(self.database_password_file), safe="")
            return urlunsplit(parts._replace(netloc=f"{user}:{password}@{place}"))
        file = str(self.data_dir / "shampoo-tuner.sqlite3")
        return url or f"sqlite:///{file.replace('%', '%25').replace('?', '%3F')}"

    @property
    def database_files(self) -> tuple[Path, ...]:
        """The files of the database if it is SQLite's, whether they are there or not."""
        prefix = "sqlite:///"
        if not self.resolved_database_url.startswith(prefix):
            return ()
        name = unquote(self.resolved_database_url.removeprefix(prefix).partition("?")[0])
        return tuple(Path(f"{name}{suffix}") for suffix in ("", "-wal", "-shm", "-journal"))

    @property
    def only_this_machine_can_ask(self) -> bool:
        """True if `host` is this machine alone, and `allowed_hosts` names no other, as a proxy's."""
        return not self.is_bound_to_all_addresses and set(self.answered_hosts) <= set(THIS_MACHINE)

    def to_environment(self) -> dict[str, str]:
        """The environment variables from which another process reads these settings."""
        values = self.model_dump(mode="json", exclude_none=True)
        return {f"{ENV_PREFIX}{name.upper()}": str(value) for name, value in values.items()}
