"""The documentation builds, its links have targets, and its commands are accepted by their programs."""

import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest
from conftest import RELA, ROOT, run
from documents import MARKS, PAGES, blocks

from fairseq_rela import cli

BLOCKS = [block for page in PAGES for block in blocks(page)]
SHELL = [block for block in BLOCKS if block.language == "sh"]
COMMANDS = [(block, command) for block in SHELL for command in block.commands]
USER_DIR = str(ROOT / "fairseq_rela")


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_no_page_holds_commit_hashes():
    commit = re.compile(r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{7,40}\b")
    for page in PAGES:
        assert commit.findall(page.read_text(encoding="utf-8")) == [], page


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_of_the_top_level_pages_lead_to_files(page):
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", text) + re.findall(r'src="([^"]+)"', text)
    local = [link for link in links if not link.startswith("http")]
    assert local and [link for link in local if not (ROOT / link).is_file()] == []


def test_the_site_builds_without_a_warning(tmp_path):
    """As in scripts/docs.sh, --strict makes a broken link or a missing docstring an error."""
    pytest.importorskip("mkdocs", reason="scripts/docs.sh and scripts/test.sh install it from requirements-docs.txt")
    env = {"NO_MKDOCS_2_WARNING": "true"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path]
    result = run(*command, cwd=ROOT, env=env)
    assert result.returncode == 0, result.stdout + result.stderr
    assert {"index.html", "fairseq", "api", "code"} <= {path.name for path in tmp_path.iterdir()}
    api = (tmp_path / "api" / "index.html").read_text(encoding="utf-8")
    assert "build_attention" in api and ":math:<code>" not in api


def test_the_script_that_builds_the_site_is_strict():
    assert re.search(r"mkdocs build --strict", (ROOT / "scripts" / "docs.sh").read_text())


# --- commands ----------------------------------------------------------------------------------------------------


def test_every_block_of_shell_states_how_it_is_checked():
    assert len(SHELL) > 20
    for block in SHELL:
        assert block.mark, f"{block.where}: write one of {MARKS} into a comment above the block: <!-- sh: run -->"
        assert block.mark.startswith(MARKS), f"{block.where}: {block.mark}"
        for name in re.findall(r"tests/test_\w+\.py", block.mark):
            assert (ROOT / name).is_file(), f"{block.where}: {name}"


def words(command):
    """Return the words of a command, with the plugin's folder in place of its shell substitution."""
    return shlex.split(command.replace('"$(rela user-dir)"', USER_DIR).replace("$PWD", str(ROOT)), comments=True)


def parse_rela(arguments):
    options = cli.build_parser().parse_args(arguments)
    assert options.verb is not None
    for choice in (getattr(options, "attention", None),):
        if isinstance(choice, str) and options.user_dir is None:
            from fairseq_rela.variants import find_variant

            find_variant(choice)
    if options.verb in ("reproduce", "train", "download"):
        from fairseq_rela.experiment import tasks

        tasks.require_task(options.task)


def parse_fairseq(program, arguments):
    from fairseq import options

    parsers = {
        "train": options.get_training_parser,
        "generate": options.get_generation_parser,
        "interactive": lambda: options.get_generation_parser(interactive=True),
        "validate": options.get_validation_parser,
        "eval-lm": options.get_eval_lm_parser,
    }
    if program == "preprocess":  # it has no model, which parse_args_and_arch asks for
        options.get_preprocessing_parser().parse_args(arguments)
        return
    options.parse_args_and_arch(parsers[program](), input_args=arguments)


def parse_hydra(arguments):
    """Compose the configuration of the command, or of a sweep's first run; a cluster launcher may be missing."""
    from test_config import compose

    name = arguments[arguments.index("--config-name") + 1]
    folder = arguments[arguments.index("--config-dir") + 1]
    assert folder in ("configs", "configs/lm")
    overrides = [re.sub(r"(=[^\[,]*),.*", r"\1", part) for part in arguments if "=" in part]
    if any(part.startswith("hydra.launcher.") for part in overrides):
        pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
        overrides = [part for part in overrides if not part.startswith(("hydra.", "run="))]
    assert compose(name, *overrides, folder=ROOT / folder)


@pytest.mark.parametrize(
    "block, command", COMMANDS, ids=[f"{block.where}-{command[:40]}" for block, command in COMMANDS]
)
def test_every_command_is_accepted_by_its_program(block, command, capsys):
    command = command.split(" | ")[-1]
    program, *arguments = words(command)
    try:
        if program == "rela":
            parse_rela(arguments)
        elif program == "scripts/reproduce.sh":
            parse_rela(["reproduce", *arguments])
        elif program == "fairseq-hydra-train":
            parse_hydra(arguments)
        elif program.startswith("fairseq-"):
            parse_fairseq(program[len("fairseq-") :], arguments)
        elif program == "python" and arguments[0].startswith("scripts/"):
            result = run(sys.executable, ROOT / arguments[0], "--help")
            assert result.returncode == 0 and all(a in result.stdout for a in arguments if a.startswith("--"))
        elif program.startswith("scripts/"):
            assert os.access(ROOT / program, os.X_OK)
        else:
            assert program in ("pip", "python", "source", "pre-commit", "ruff", "export", "git"), f"{program}: unknown"
    except SystemExit:
        pytest.fail(f"{block.where}: {command}: {capsys.readouterr().err}")


def test_every_verb_is_in_the_table_of_verbs():
    (actions,) = cli.build_parser()._subparsers._group_actions
    table = (ROOT / "docs" / "getting-started.md").read_text(encoding="utf-8").split("## All verbs")[1]
    rows = " ".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`(?:rela )?([\w-]+)`", rows)) == set(actions.choices)


def test_every_variant_is_in_the_table_of_variants():
    from fairseq_rela.variants import VARIANTS

    table = (ROOT / "docs" / "variants.md").read_text(encoding="utf-8").split("## Adding one")[0]
    assert set(VARIANTS) <= set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE))


def test_every_module_of_the_package_is_described():
    """docs/code.md describes each module and folder of the package."""
    text = (ROOT / "docs" / "code.md").read_text(encoding="utf-8")
    package = ROOT / "fairseq_rela"
    names = [path.stem for path in package.glob("*.py")] + [path.parent.name for path in package.glob("*/__init__.py")]
    assert [name for name in names if not re.search(rf"`{name}(?:\.py|/)?`", text)] == []


def test_python_blocks_are_python():
    for block in BLOCKS:
        if block.language == "python":
            compile(block.text, block.where, "exec")


# --- the blocks that are marked to be run ------------------------------------------------------------------------

# Options added to slow commands so that they take seconds: only sizes and numbers of updates.
TINY = ["--encoder-layers", "1", "--decoder-layers", "1", "--encoder-attention-heads", "2"]
TINY += ["--decoder-attention-heads", "2", "--encoder-ffn-embed-dim", "32", "--decoder-ffn-embed-dim", "32"]
TINY += ["--encoder-embed-dim", "32", "--decoder-embed-dim", "32", "--max-update", "2", "--max-tokens", "800", "--cpu"]
SHORT = {
    "rela prepare": ["--merges", "60", "--vocabulary-threshold", "2", "--workers", "1"],
    "rela train": ["--override", "size=tiny"],
    "rela reproduce": ["--workers", "1"],
    "fairseq-train": TINY,
    "fairseq-hydra-train": ["size=tiny"],
    "fairseq-generate": ["--cpu", "--beam", "1"],
    "fairseq-interactive": ["--cpu"],
    "fairseq-validate": ["--cpu"],
}
# The values in the copy of the configurations.
FEW = {"max_update": "10", "max_epoch": "0", "save_interval_updates": "2", "max_tokens": "1000"}


def copy_configs(folder):
    """Copy configs/, with few updates of few tokens for the tasks of the documentation; return the copy."""
    shutil.copytree(ROOT / "configs", folder / "configs")
    (folder / "fairseq_rela").symlink_to(ROOT / "fairseq_rela")  # the configurations refer to this folder
    for name in ("experiment/synthetic", "experiment/multi30k_en_de", "run/cpu"):
        path = folder / "configs" / f"{name}.yaml"
        text = path.read_text(encoding="utf-8")
        changed = re.sub(r"\b(\w+): (\d+)\b", lambda found: f"{found[1]}: {FEW.get(found[1], found[2])}", text)
        assert changed != text
        path.write_text(changed, encoding="utf-8")
    return folder / "configs"


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Make a folder with `rela` and fairseq's commands, each with the options that make it quick."""
    folder = tmp_path_factory.mktemp("bin")
    start = f"exec {shlex.quote(sys.executable)} -W ignore"
    code = shlex.quote(RELA[-1])
    cases = "".join(
        f'{name.split()[1]}) set -- "$@" {shlex.join(extra)} ;;\n' for name, extra in SHORT.items() if " " in name
    )
    scripts = {"rela": f'case "$1" in\n{cases}esac\n{start} -c {code} "$@"\n', "python": f'{start} "$@"\n'}
    for name, extra in SHORT.items():
        if " " not in name:
            module = "fairseq_cli." + name[len("fairseq-") :].replace("-", "_")
            scripts[name] = f'{start} -m {module} "$@" {shlex.join(extra)}\n'
    for name, text in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}")
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.slow
def test_blocks_marked_to_be_run_succeed(programs, corpus, tmp_path):
    """The blocks run in the order of the pages in one folder, as later pages use the files of earlier ones."""
    (tmp_path / "raw").mkdir()
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for path in corpus.iterdir():
        name = path.name.replace(".xa", ".en").replace(".xb", ".de")
        (tmp_path / "raw" / name).write_bytes(path.read_bytes())
    configs = copy_configs(tmp_path)
    env = {"PATH": f"{programs}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1", "FAIRSEQ_RELA_CONFIGS": str(configs)}
    ran = 0
    for block in BLOCKS:
        if block.mark != "run":
            continue
        command = ["bash", "-euo", "pipefail", "-c", block.text]
        if block.language == "python":
            command = [sys.executable, "-W", "ignore", "-c", block.text]
        result = run(*command, cwd=tmp_path, env=env)
        assert result.returncode == 0, f"{block.where}\n{block.text}\n{(result.stdout + result.stderr)[-3000:]}"
        ran += 1
    assert ran >= 15
    assert (tmp_path / "report.html").is_file() and (tmp_path / "ranked.tsv.en").is_file()
    log = (tmp_path / "RUN" / "train.log").read_text(encoding="utf-8")
    assert "attention: encoder rela_g x 2, decoder rela_g x 2, cross rela_g x 2" in log


def test_user_dir_prints_a_folder_that_fairseq_accepts():
    result = subprocess.run(
        [*RELA, "user-dir"],
        stdout=subprocess.PIPE,
        encoding="utf-8",
        cwd="/",
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert result.stdout == f"{USER_DIR}\n"
