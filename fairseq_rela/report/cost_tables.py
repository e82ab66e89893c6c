"""Tables 2 and 4 of the paper: parameters and speeds, and floating-point operations."""

from typing import Dict, List, Optional, Sequence

from . import paper
from .groups import Group
from .seeds import dagger
from .speed import Speeds
from .table import NONE, Cell, Table, row_name

_COLUMNS = ("parameters", "training speed", "decoding speed, one by one", "training speed, PyTorch re-test")
_NOTES = (
    "The paper: newstest2014 En-De, speeds relative to softmax, 500 steps of about 25K tokens, mean of 3 runs.",
    "72.34M does not follow from the released code, whose two vectors of 512 in 18 sublayers make 72.33M.",
)


def table_2(groups: Sequence[Group], speeds: Optional[Speeds]) -> Table:
    """Return Table 2, with the parameters of the runs and the speeds of a benchmark beside the paper's."""
    counted = [group for group in groups if any(run.parameters for run in group.runs)]
    comparable = [group.is_test_set_of(paper.TABLE_1_TASK) for group in counted]
    measured = _measured(speeds)
    head = [Cell("model"), *(Cell(f"paper: {name}", "n paper") for name in _COLUMNS)]
    head += [Cell(f"counted, {g.title}", "n" if same else "n other") for g, same in zip(counted, comparable)]
    head += [Cell(f"measured: {what}", "n") for what in measured]
    rows = []
    for key, published in paper.TABLE_2.items():
        cells = [row_name(paper.NAMES[key]), Cell(f"{published.parameters:.2f}M", "n paper")]
        cells += [Cell(f"{value:.2f}×", "n paper") for value in published[1:]]
        for group, same in zip(counted, comparable):
            runs = [run for run in group.runs if run.is_everywhere(key) and run.parameters]
            found = dict.fromkeys(f"{run.parameters:,}{dagger(run)}" for run in runs)
            cells.append(Cell("; ".join(found) or NONE, "n ours" if same else "n other"))
        cells += [Cell(f"{of[key]:.2f}×" if key in of else NONE, "n ours") for of in measured.values()]
        rows.append(cells)
    return Table("Table 2: parameters and speed", [head], rows, [*_NOTES, *_speed_notes(speeds)])


def _measured(speeds: Optional[Speeds]) -> Dict[str, Dict[str, float]]:
    """Return name of a measurement to attention to speed relative to softmax."""
    if speeds is None:
        return {}
    found = {"training speed": speeds.training} if speeds.training else {}
    for one in speeds.decoding:
        found[f"decoding speed, {'one by one' if one.batch == 1 else f'{one.batch} at a time'}"] = one.overall
    return found


def _speed_notes(speeds: Optional[Speeds]) -> List[str]:
    if speeds is None or not _measured(speeds):
        return ["Speeds are not measured yet; see what is missing."]
    about = (speeds.about_training, speeds.about_decoding if speeds.decoding else "")
    return [
        f"Measured speeds: {speeds.device}; {speeds.command}. Its benchmark.json has the models and lengths.",
        " ".join(filter(None, about)),
    ]


def table_4() -> Table:
    """Return Table 4, the floating-point operations by the formulas of the paper."""
    names = ("softmax: 3HT² − HT", "ReLA-g: HT² + 10Td + T", "ReLA-g / softmax")
    head = [Cell("T, sequence length", "n"), *(Cell(name, "n paper") for name in names)]
    rows = []
    for length in (100, 1000):
        softmax, rela = paper.table_4_softmax(length), paper.table_4_rela_g(length)
        values = (f"{softmax:,}", f"{rela:,}", f"{rela / softmax:.2f}")
        rows.append([row_name(f"{length:,}", "n"), *(Cell(value, "n paper") for value in values)])
    note = f"The paper’s formulas at H = {paper.TABLE_4_HEADS}, d = {paper.TABLE_4_SIZE}; not measured."
    return Table("Table 4: floating-point operations, by formula", [head], rows, [note])
