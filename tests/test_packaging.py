"""The built packages of the project, and an environment in which they are installed."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest
from conftest import ROOT, run

IGNORED = shutil.ignore_patterns(
    ".*", "experiments", "tests", "studies", "site", "*.pyc", "*.egg-info", "build", "dist"
)
BUILD = (  # building replaces sys.argv
    "import sys; from setuptools import build_meta as b; to = sys.argv[1]; b.build_sdist(to); b.build_wheel(to)"
)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build the wheel and the source package by the environment's setuptools from a copy of the checkout."""
    folder = tmp_path_factory.mktemp("built")
    shutil.copytree(ROOT, folder / "copy", ignore=IGNORED)
    result = run(sys.executable, "-W", "ignore", "-c", BUILD, folder, cwd=folder / "copy", env={"PYTHONPATH": ""})
    if "No module named 'wheel'" in result.stderr or "invalid command 'bdist_wheel'" in result.stderr:
        pytest.skip("this environment's setuptools builds no wheel")
    assert result.returncode == 0, result.stderr[-3000:]
    shutil.rmtree(folder / "copy")
    return folder


def wanted():
    """Return the path in site-packages of every file that an installed package must have."""
    for folder, inside in ((ROOT / "fairseq_rela", "fairseq_rela"), (ROOT / "configs", "fairseq_rela/configs")):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield f"{inside}/{path.relative_to(folder)}"


def test_the_wheel_has_every_file(built):
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"fairseq_rela/py.typed", "fairseq_rela/report/report.css", "fairseq_rela/configs/synthetic.yaml"} < names
    assert [name for name in wanted() if name not in names] == []
    assert [name for name in names if name.startswith(("tests/", "scripts/", "docs/"))] == []


def test_the_source_package_builds_the_same_wheel(built, tmp_path):
    (source,) = built.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path)
    (unpacked,) = tmp_path.iterdir()
    assert {"README.md", "CHANGELOG.md", "LICENSE", "CITATION.cff"} <= {path.name for path in unpacked.iterdir()}
    code = "import sys; from setuptools import build_meta as b; b.build_wheel(sys.argv[1])"
    (tmp_path / "wheel").mkdir()
    result = run(sys.executable, "-W", "ignore", "-c", code, tmp_path / "wheel", cwd=unpacked, env={"PYTHONPATH": ""})
    assert result.returncode == 0, result.stderr[-3000:]
    (again,), (wheel,) = (tmp_path / "wheel").glob("*.whl"), built.glob("*.whl")
    first, second = (zipfile.ZipFile(path) for path in (wheel, again))
    packaged = [name for name in first.namelist() if name.startswith("fairseq_rela/")]
    assert sorted(packaged) == sorted(name for name in second.namelist() if name.startswith("fairseq_rela/"))
    assert all(first.read(name) == second.read(name) for name in packaged)


@pytest.mark.slow
def test_the_wheel_in_a_new_environment_has_the_command_and_the_user_dir(built, tmp_path):
    """The new environment uses the libraries of this one, and not the checkout."""
    venv, (wheel,) = tmp_path / "venv", built.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (site,) = venv.glob("lib/python*/site-packages")
    env = {"PYTHONPATH": "", "PATH": f"{venv / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    pip = [sys.executable, "-m", "pip", "--python", venv / "bin" / "python", "install", "--no-deps", "--no-index"]
    result = run(*pip, "--quiet", wheel, env=env)
    if "no such option: --python" in result.stderr:
        pytest.skip("this pip installs into its own environment only")
    assert result.returncode == 0, result.stderr
    # searched after its own packages, without the checkout, which this environment may have
    paths = [path for path in sys.path if "site-packages" in path]
    (site / "libraries.pth").write_text("\n".join(paths) + "\n")
    user_dir = run(venv / "bin" / "rela", "user-dir", env=env, cwd=tmp_path)
    assert user_dir.stdout == f"{site / 'fairseq_rela'}\n", user_dir.stderr
    code = (
        "from fairseq import options; a = options.parse_args_and_arch(options.get_training_parser());"
        "import fairseq_rela; print(a.attention_sites, fairseq_rela.__file__)"
    )
    options = "DATA --task translation_rela --arch transformer_rela --attention-sites cross"
    command = f'"{venv}/bin/python" -W ignore -c "{code}" {options} --user-dir "$(rela user-dir)"'
    result = run("bash", "-c", command, env=env, cwd=tmp_path)
    assert result.returncode == 0, result.stderr[-2000:]
    assert result.stdout.splitlines()[-1] == f"cross {site / 'fairseq_rela' / '__init__.py'}"
    listed = run(venv / "bin" / "rela", "download", "wmt16_ro_en", "--list", env=env, cwd=tmp_path)
    assert listed.returncode == 0 and "europarl" in listed.stdout.lower()
