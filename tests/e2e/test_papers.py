"""Every README is true where that costs little: paths, links, commands with their options, snippets, tables.

`test_readme`, `test_readme_modes` and `test_workloads` run the commands that take longer.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
import torch.distributed as dist
import yaml
from typer.core import TyperGroup
from typer.main import get_command

import shampoo
from search_spaces import SearchSpace
from service.cli.commands import app
from service.client import Client
from service.client.own_token import TOKEN, TOKEN_FILE
from service.code import archive
from service.hosts import URL
from service.server.app import MAX_STREAMS, MAX_STREAMS_PER_ADDRESS, create_app
from service.settings import ENV_PREFIX, Settings
from service.specification.job import JobSpecification
from service.specification.planning import plan_job
from service.use_cases import submit, webhooks
from shampoo.hyperparameters import DEFAULTS, Preconditioner
from tests.support.readmes import PACKAGES, README, ROOT, anchors, blocks, command_lines, papers, text
from tests.support.shampoo.adapters import adapted_model
from trainers.config import TrialConfig
from trainers.workloads.registry import BUILT_IN

FOLDERS = (*PACKAGES, "tests", "docker")
PAPERS = papers()
PLACEHOLDERS = ("TRIAL", "NUMBER")
"""Words for the reader to put a number in their place."""
RUN_ELSEWHERE = (f"service/{README}", "service/LOOPS.md")
"""Papers whose Python needs a service, or libraries of others; the tests of what it shows run it."""
MAX_LINES = 200
MAX_GLOSSARY_LINES = 30


def test_every_package_has_a_readme() -> None:
    assert [package for package in PACKAGES if f"{package}/{README}" not in PAPERS] == []


def test_the_first_page_and_the_glossary_are_short() -> None:
    assert len(text(README).splitlines()) <= MAX_LINES
    glossary = re.search(r"^## Words\n\n(.*?)\n\n", text(f"service/{README}"), re.DOTALL | re.MULTILINE)
    assert glossary is not None
    lines = glossary.group(1).splitlines()
    assert len(lines) <= MAX_GLOSSARY_LINES
    assert [line for line in lines if not line.startswith("- **")] == []


@pytest.mark.parametrize("paper", PAPERS)
def test_the_paths_it_names_exist(paper: str) -> None:
    folders = "|".join(FOLDERS)
    named = set(re.findall(rf"`((?:{folders}|\.github|\.ci)/[\w./-]*)[ `]", text(paper)))
    named |= {
        word
        for words in command_lines(paper)
        for word in words
        if re.fullmatch(rf"(?:\./)?(?:{folders}|\.ci)/[\w./-]+", word)
    }
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_walks_of_a_value_and_a_measurement_name_what_stands_there() -> None:
    hops = re.findall(r"^ ([^`\n]{22}) ((?:\w+/)+\w+) +(.*)", text("service/INSIDE.md"), re.MULTILINE)
    assert len(hops) > 12
    for passed, place, told in hops:
        source = _source(place)
        assert source, place
        names = [*re.findall(r"\b[A-Z][a-z]\w+", passed), *re.findall(r"`(?:\w+\.)?(\w+_\w+|(?<=\.)\w+)`", told)]
        assert [name for name in names if not re.search(rf"\b{name}\b", source)] == [], place


def _source(place: str) -> str:
    """The text of a module, or of all modules of a folder, of the project or of the service; empty: there is none."""
    at = [ROOT / place, ROOT / "service" / place]
    found = [path for folder in at for path in (folder.with_suffix(".py"), *sorted(folder.glob("*.py")))]
    return "".join(path.read_text(encoding="utf-8") for path in found if path.is_file())


@pytest.mark.parametrize("paper", PAPERS)
def test_its_links_lead_somewhere(paper: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", text(paper)):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        linked = Path(os.path.normpath((ROOT / paper).parent / path)) if path else ROOT / paper
        assert linked.exists(), target
        if anchor:
            assert anchor in anchors(str(linked.relative_to(ROOT))), target


@pytest.mark.parametrize("paper", PAPERS)
def test_a_list_of_contents_has_every_section(paper: str) -> None:
    beginning, *sections = re.split(r"^## (.*)$", text(paper), flags=re.MULTILINE)
    listed = re.findall(r"\[([^\]]+)\]\(#[^)]+\)", beginning)
    if listed:
        assert [title for title in sections[::2] if title not in listed] == []


@pytest.mark.parametrize("paper", PAPERS)
def test_the_python_names_it_mentions_exist(paper: str) -> None:
    for name in re.findall(rf"`((?:{'|'.join((*PACKAGES, 'tests'))})(?:\.[A-Za-z_]\w*)+)`", text(paper)):
        pkgutil.resolve_name(name)


@pytest.mark.processes
@pytest.mark.parametrize("paper", PAPERS)
def test_its_shell_blocks_can_be_parsed(paper: str) -> None:
    for block in blocks(paper, "sh"):
        checked = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stderr


def _module_commands() -> Iterator[tuple[str, str, list[str]]]:
    """Paper, module and arguments of every command that starts one of our modules; each command once."""
    seen = set()
    for paper in PAPERS:
        for words in command_lines(paper):
            if words[0] == "tests/gpu/run":
                words = ["-m", "tests.gpu.__main__", *words[1:]]
            if "-m" in words:
                module, *arguments = words[words.index("-m") + 1 :]
                if module.partition(".")[0] in FOLDERS and (command := (module, *arguments)) not in seen:
                    seen.add(command)
                    yield paper, module, arguments


@pytest.mark.parametrize(
    ("paper", "module", "arguments"),
    [pytest.param(*case, id=f"{case[1]}-{n}") for n, case in enumerate(_module_commands())],
)
def test_a_module_takes_the_arguments_it_is_called_with(
    paper: str, module: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [word.partition("=")[0] for word in arguments if word.startswith("--")]
    # `--help` ends the command after all values before it have been checked; it leaves options unchecked.
    monkeypatch.setattr(sys, "argv", [module, *(word for word in arguments if word != "$@"), "--help"])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(module).main()
    told = capsys.readouterr()
    assert ended.value.code == 0, f"{paper}: {told.err}"
    assert [option for option in options if option not in told.out] == []


def _shampoo_tuner_commands() -> Iterator[tuple[str, list[str]]]:
    for paper in PAPERS:
        for words in command_lines(paper):
            if words[0].rpartition("/")[2] == "shampoo-tuner":
                yield paper, words[1:]
        for inline in re.findall(r"`shampoo-tuner ([^`]+)`", text(paper)):
            yield paper, inline.split()
        for rows in re.findall(r"^\| `shampoo-tuner` .*\n\|-.*\n((?:\|.*\n)+)", text(paper), re.MULTILINE):
            for row in rows.splitlines():
                for inline in re.findall(r"`([^`]+)`", row.split(" | ")[0]):
                    yield paper, inline.split()


@pytest.mark.parametrize(("paper", "arguments"), list(_shampoo_tuner_commands()))
def test_a_command_of_shampoo_tuner_is_as_it_says(paper: str, arguments: list[str]) -> None:
    command = get_command(app)
    name = "shampoo-tuner"
    while isinstance(command, TyperGroup):
        name, *arguments = arguments
        assert name in command.commands, paper
        command = command.commands[name]
    command.make_context(name, ["0" if word in PLACEHOLDERS else word for word in arguments])


@pytest.mark.parametrize("paper", PAPERS)
def test_the_settings_and_extras_it_names_exist(paper: str) -> None:
    known = {f"{ENV_PREFIX}{name.upper()}" for name in Settings.model_fields}
    known |= {f"{ENV_PREFIX}CACHE", TOKEN, TOKEN_FILE, URL}
    assert set(re.findall(rf"\b{ENV_PREFIX}[A-Z_]+\b", text(paper))) <= known
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r"(?:shampoo-tuner|\.)\[(\w+)\]'", text(paper))) <= set(extras)


@pytest.mark.slow
def test_the_addresses_of_the_api_they_name_exist() -> None:
    routes = [re.sub(r"\{\w+\}", "[^/]+", path) for path in create_app(Settings()).openapi()["paths"]]
    for paper in PAPERS:
        for path in re.findall(r"/v1/[\w/-]+", text(paper)):
            assert any(re.fullmatch(route, path) for route in routes), (paper, path)


@pytest.fixture
def _one_rank(tmp_path: Path) -> Iterator[None]:
    """A process group of this process alone, for snippets with DDP."""
    dist.init_process_group("gloo", rank=0, world_size=1, init_method=f"file://{tmp_path / 'meeting_point'}")
    yield
    gc.collect()  # no model of a snippet may outlive the group
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("paper", [paper for paper in PAPERS if blocks(paper, "python") and paper not in RUN_ELSEWHERE])
@pytest.mark.usefixtures("_one_rank")
def test_its_python_runs_and_prints_the_tables_beside_it(paper: str) -> None:
    torch.manual_seed(0)
    first = torch.nn.Linear(4, 5)
    model = torch.nn.Sequential(first, torch.nn.Linear(5, 3))
    batch = (torch.randn(8, 4), torch.randint(3, (8,)))
    before = first.weight.detach().clone()
    names: dict[str, Any] = {
        "model": model,
        "adapted": adapted_model(),
        "batches": [batch] * 3,
        "loss_of": torch.nn.functional.cross_entropy,
    }
    for block in blocks(paper, "python"):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(block, paper, "exec"), names)
        if "|" in printed.getvalue():
            assert printed.getvalue().strip() in text(paper)
    if "optimizer.step()" in text(paper):
        assert not torch.equal(before, first.weight)


def test_the_python_of_the_service_calls_what_the_client_has() -> None:
    (snippet,) = (block for block in blocks(f"service/{README}", "python") if "import Client" in block)
    called = [
        node.attr
        for node in ast.walk(ast.parse(snippet))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "client"
    ]
    assert {"submit", "wait", "recommendation"} == set(called)
    assert [name for name in called if not hasattr(Client, name)] == []


def test_the_limits_that_the_manual_of_the_service_names_are_those_of_the_code() -> None:
    manual = " ".join(text(f"service/{README}").split())
    for told in (
        f"again for {sum(webhooks.PAUSES) / 3600:.0f} hours where it fails",
        f"after {webhooks.FAILURES_UNTIL_DISABLED} requests in a row that failed",
        f"{webhooks.MAX_WEBHOOKS} webhooks",
        f"{archive.MAX_FILES:,} files and {archive.MAX_BYTES / 1e6:.0f} MB are taken, "
        f"{archive.MAX_SENT_BYTES / 1e6:.0f} MB once compressed",
        f"hold for {submit.IDEMPOTENCY_KEYS_KEPT.days} days",
        f"beyond {MAX_STREAMS}, or {MAX_STREAMS_PER_ADDRESS} to one address",
    ):
        assert told in manual


@pytest.mark.slow
def test_every_member_trains_with_the_values_to_start_with() -> None:
    rows = re.findall(r'^\| `"(\w+)"` \|.*\| (.*) \|$', text(f"shampoo/{README}"), re.MULTILINE)
    assert [name for name, _ in rows] == list(get_args(Preconditioner))
    for name, values in rows:
        start = eval(f"dict({values.strip('`')})") if values.startswith("`") else {}
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
        optimizer = shampoo.Shampoo(shampoo.param_groups(model, precondition_head=True), preconditioner=name, **start)
        inputs, targets = torch.randn(8, 4), torch.randint(3, (8,))
        losses = []
        for _ in range(30):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < losses[0], name


def test_every_hyperparameter_is_in_the_manual_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", text(f"shampoo/{README}"), re.MULTILINE))
    assert {name: ast.literal_eval(default) for name, default in rows.items()} == DEFAULTS


def test_every_workload_is_in_the_table() -> None:
    table = re.search(r"^## Workloads\n\n((?:\|.*\n)+)", text(f"trainers/{README}"), re.MULTILINE)
    assert table is not None
    named = {name for row in table.group(1).splitlines() for name in re.findall(r"`([\w-]+)`", row.split(" | ")[0])}
    assert named == set(BUILT_IN)


def test_the_examples_of_jobs_are_accepted() -> None:
    posted = next(
        re.search(r"-d '(\{.*?\})'", block, re.DOTALL) for block in blocks(README, "sh") if "curl -i" in block
    )
    assert posted is not None
    (job_file,) = blocks(README, "yaml")
    parts = [json.loads(block) for block in blocks(f"service/{README}", "json")]
    adapters = [yaml.safe_load(block) for block in blocks(f"trainers/{README}", "yaml")]
    whole = [json.loads(posted.group(1)), yaml.safe_load(job_file), *adapters]
    for content in (*whole, *({"workload": {"name": "digits-mlp"}, **part} for part in parts)):
        specification = JobSpecification.model_validate(content)
        if specification.code is None:  # else its workload comes with the job
            plan_job(specification)


def test_the_issue_form_is_one() -> None:
    form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / "issue.yml").read_text())
    assert form.keys() == {"name", "description", "body"}
    assert all({"type", "id", "attributes"} <= field.keys() for field in form["body"])
    assert len({field["id"] for field in form["body"]}) == len(form["body"])


def test_the_examples_of_settings_and_spaces_are_accepted() -> None:
    base = {"workload": "digits-mlp", "optimizer": {"name": "shampoo"}, "num_steps": 100, "batch_size": 128}
    for block in blocks(f"trainers/{README}", "json"):
        TrialConfig.from_json({**base, **json.loads(block)})
    for block in blocks(f"search_spaces/{README}", "json"):
        SearchSpace.from_json(json.loads(block))
    for block in blocks(f"trainers/{README}", "toml"):
        tomllib.loads(block)
