"""The structure of the package: the imports that each room may have, and the length of files and functions."""

import ast
import re
from pathlib import Path
from typing import Iterator, NamedTuple, Set, Tuple

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "fairseq_rela"
FILES = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in FILES.items()}

# A room imports its own modules and the rooms of earlier groups; the tools also import the whole plugin.
PLUGIN = (
    ("errors",),
    ("functional", "alignment", "contract", "user_dir"),
    ("kernels", "peers", "threshold"),
    ("norms", "ops"),
    ("variants", "nn"),
    ("attention",),
    ("models", "criterions", "readers", "identity", "safe_loading", "encoders", "testing"),
    ("tasks", "compat"),
    ("register",),
    ("__init__",),
)
TOOLS = (
    ("files",),
    ("text", "corpora", "checkpoints"),
    ("data",),
    ("analysis",),
    ("experiment",),
    ("report",),
    ("study", "benchmark"),
    ("pruning",),
    ("cli",),
)
# imports of the plugin from the tools, allowed only inside functions
EXCEPTIONS = {("encoders", "text"), ("encoders", "data")}

LONGEST_FILE, LONGEST_FUNCTION = 350, 60
DRAWING = ("report/plots/", "report/figure.py", "study/figures.py")
LONG_FILES = {"kernels/triton_attention.py"}


class Import(NamedTuple):
    """One imported name: ``target`` is its dotted path, relative to the package if it is inside it."""

    target: str
    name: str
    in_function: bool


def room(file: str) -> str:
    """Return the first part of a file's path: a folder, or a module of the top level."""
    return file.split("/")[0].replace(".py", "")


def imports(file: str) -> Iterator[Import]:
    """Yield every import of a file, also those inside functions."""
    package = ["fairseq_rela", *file.split("/")[:-1]]

    def visit(node: ast.AST, in_function: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(alias.name, alias.name, in_function)
            elif isinstance(child, ast.ImportFrom):
                base = package[: len(package) - child.level + 1] if child.level else []
                module = ".".join([*base, *([child.module] if child.module else [])])
                for alias in child.names:
                    yield Import(f"{module}.{alias.name}", alias.name, in_function)
            is_function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
            yield from visit(child, in_function or is_function)

    yield from visit(TREES[file], False)


def arrows(file: str) -> Iterator[Tuple[str, bool]]:
    """Yield the other rooms of the package that a file imports, and whether inside a function."""
    rooms = {room for group in (*PLUGIN, *TOOLS) for room in group}
    for found in imports(file):
        if found.target.startswith("fairseq_rela."):
            other = found.target.split(".")[1]
            if other not in rooms:
                other = "__init__"  # a name of the package itself, such as its version
            if other != room(file):
                yield other, found.in_function


def test_every_room_is_listed_in_the_groups():
    placed = [room for group in (*PLUGIN, *TOOLS) for room in group]
    assert sorted(placed) == sorted({room(file) for file in FILES})


def allowed_rooms(here: str) -> Set[str]:
    """Return the rooms that a room may import anywhere."""
    order = PLUGIN if any(here in group for group in PLUGIN) else TOOLS
    level = next(i for i, group in enumerate(order) if here in group)
    earlier = order[:level] if order is PLUGIN else (*PLUGIN, *order[:level])
    return {other for group in earlier for other in group}


def test_imports_between_rooms_go_one_way():
    wrong = set()
    for file in FILES:
        here = room(file)
        for other, in_function in arrows(file):
            if other not in allowed_rooms(here) and not (in_function and (here, other) in EXCEPTIONS):
                wrong.add((file, other))
    assert wrong == set()


@pytest.mark.parametrize("file", FILES)
def test_names_that_leave_a_module_are_public(file):
    private = [
        found.target
        for found in imports(file)
        if found.target.startswith("fairseq_rela.") and found.name.startswith("_") and not found.name.startswith("__")
    ]
    assert private == []


def test_only_the_drawing_modules_import_matplotlib():
    drawing = {file for file in FILES for found in imports(file) if found.target.split(".")[0] == "matplotlib"}
    assert {file for file in drawing if not file.startswith(DRAWING)} == set()


def test_files_are_short():
    """Only Triton's kernels may be longer."""
    assert {file for file, path in FILES.items() if len(path.read_text().splitlines()) > LONGEST_FILE} == LONG_FILES


def test_functions_are_short():
    """The lines are counted after the docstring."""
    long = set()
    for file, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = node.end_lineno - node.body[0].lineno + 1
                if lines > LONGEST_FUNCTION:
                    long.add((file, node.name))
    assert long == set()


@pytest.mark.parametrize("room", ["analysis", "benchmark", "report", "study"])
def test_a_room_lists_its_modules(room):
    folder = PACKAGE / room
    listed = re.findall(r":mod:`\.(\w+)`", ast.get_docstring(TREES[f"{room}/__init__.py"]))
    folders = {path.parent.name for path in folder.glob("*/__init__.py")}
    assert set(listed) == {path.stem for path in folder.glob("*.py")} - {"__init__"} | folders
