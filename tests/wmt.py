"""Small archives in the form of the WMT corpora, by their addresses, and a copy of configs/ that fetches them.

The forms are written here independently, from the descriptions of the corpora, so that a wrong member or format in
``configs/corpus/`` is found. The text comes from the news test sets if they are available, or is generated.
"""

import gzip
import io
import random
import shutil
import tarfile
import zipfile
from functools import lru_cache
from xml.sax.saxutils import escape

import yaml
from conftest import ROOT, SHARED
from sacrebleu.metrics import BLEU

NEWS = SHARED / "data" / "wmt_newstest"
_NEWS_FILES = {
    "de-en": ("newstest2014.en-de", "de", "en"),
    "fr-en": ("newstest2014.en-fr", "fr", "en"),
    "fi-en": ("newstest2018.en-fi", "fi", "en"),
    "zh-en": ("newstest2018.zh-en", "zh", "en"),
    "ro-en": ("newstest2016.ro-en", "ro", "en"),
}
_LETTERS = {
    "de": "abcdefgäöüß",
    "fr": "abcdefgéèç",
    "fi": "abcdefgäö",
    "ro": "abcdefgăâîșțşţ",
    "zh": "的一是不了人我在有他这中大来上国",
    "en": "abcdefghij",
}


def _made_up(lang, length, rng):
    words = ["".join(rng.choice(_LETTERS[lang]) for _ in range(rng.randint(1, 4))) for _ in range(length)]
    return words[0].capitalize() + ("" if lang == "zh" else " ") + ("" if lang == "zh" else " ").join(words[1:]) + "."


class Text:
    """Pairs of lines of a language pair, handed out without repetition."""

    def __init__(self, pair):
        name, *self.langs = _NEWS_FILES[pair]
        paths = [NEWS / f"{name}.{lang}" for lang in self.langs]
        if all(path.is_file() for path in paths):
            self.lines = list(zip(*(path.read_text(encoding="utf-8").split("\n")[:-1] for path in paths)))
        else:
            rng = random.Random(pair)
            lengths = [rng.randint(4, 9) for _ in range(1900)]
            self.lines = [tuple(_made_up(lang, length, rng) for lang in self.langs) for length in lengths]
        self.at = 0

    def take(self, n):
        self.at += n
        assert self.at <= len(self.lines)
        return {lang: [pair[i] for pair in self.lines[self.at - n : self.at]] for i, lang in enumerate(self.langs)}


def plain(lines):
    return "".join(line + "\n" for line in lines).encode()


def sgm(lines, lang, kind):
    """Return a test set in the organisers' format; kind is srcset or refset."""
    documents = []
    for start in range(0, len(lines), 7):
        segments = "".join(f'<seg id="{i}"> {line} </seg>\n' for i, line in enumerate(lines[start : start + 7], 1))
        documents.append(
            f'<doc sysid="ref" docid="news.{start}" genre="news" origlang="{lang}">\n<p>\n{segments}</p>\n</doc>\n'
        )
    return f'<{kind} setid="newstest" srclang="any">\n{"".join(documents)}</{kind}>\n'.encode()


def tmx(pairs, langs):
    units = "".join(
        "<tu>"
        + "".join(f'<tuv xml:lang="{lang}"><seg>{escape(text)}</seg></tuv>' for lang, text in zip(langs, pair))
        + "</tu>\n"
        for pair in pairs
    )
    head = '<?xml version="1.0" encoding="UTF-8" ?>\n<tmx version="1.4">\n<header />'
    return f"{head}\n<body>\n{units}</body>\n</tmx>\n".encode()


def tar(members, mode="w:gz"):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def zipped(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def _sides(template, lines, first="de", other="en"):
    """Return two plain members; the template has {} for the language."""
    return {template.format(lang): plain(lines[lang]) for lang in (first, other)}


def _test_set(prefix, source, target, lines):
    return {
        f"{prefix}-src.{source}.sgm": sgm(lines[source], source, "srcset"),
        f"{prefix}-ref.{target}.sgm": sgm(lines[target], source, "refset"),
    }


@lru_cache(maxsize=None)
def archives():
    """Return address to the bytes of the archive."""
    de, fr, fi, zh, ro = (Text(pair) for pair in ("de-en", "fr-en", "fi-en", "zh-en", "ro-en"))
    files = {}
    statmt, data = "http://www.statmt.org", "http://data.statmt.org"
    files[f"{statmt}/wmt13/training-parallel-europarl-v7.tgz"] = tar(
        {
            **_sides("training/europarl-v7.de-en.{}", de.take(250)),
            **_sides("training/europarl-v7.fr-en.{}", fr.take(150), "fr"),
        }
    )
    files[f"{statmt}/wmt13/training-parallel-commoncrawl.tgz"] = tar(
        {
            **_sides("commoncrawl.de-en.{}", de.take(120)),
            "commoncrawl.de-en.annotation": b"where from\n",
            **_sides("commoncrawl.fr-en.{}", fr.take(80), "fr"),
        }
    )
    files[f"{statmt}/wmt13/training-parallel-un.tgz"] = tar(_sides("un/undoc.2000.fr-en.{}", fr.take(60), "fr"))
    files[f"{statmt}/wmt14/training-parallel-nc-v9.tgz"] = tar(
        {
            **_sides("training/news-commentary-v9.de-en.{}", de.take(40)),
            **_sides("training/news-commentary-v9.fr-en.{}", fr.take(40), "fr"),
        }
    )
    giga = fr.take(70)
    # called tar, but is a gzipped tar with gzipped members
    files[f"{statmt}/wmt10/training-giga-fren.tar"] = tar(
        {f"giga-fren.release2.fixed.{lang}.gz": gzip.compress(plain(giga[lang])) for lang in ("fr", "en")}
    )
    dev_de, dev_fr = de.take(20), fr.take(20)
    files["https://statmt.org/wmt13/test.tgz"] = tar(
        {
            "test/newstest2013-src.en.sgm": sgm(dev_de["en"], "en", "srcset"),
            "test/newstest2013-src.de.sgm": sgm(dev_de["de"], "de", "srcset"),
            "test/newstest2013-src.fr.sgm": sgm(dev_fr["fr"], "fr", "srcset"),
        }
    )
    # the real English side is the same for all languages; the French test of this archive has its own here
    files["https://statmt.org/wmt13/test.tgz#fr"] = tar(
        {
            "test/newstest2013-src.en.sgm": sgm(dev_fr["en"], "en", "srcset"),
            "test/newstest2013-src.fr.sgm": sgm(dev_fr["fr"], "fr", "srcset"),
        }
    )
    old = de.take(18)
    files[f"{statmt}/wmt14/dev.tgz"] = tar(
        {
            "dev/newstest2012-src.en.sgm": sgm(old["en"], "en", "srcset"),
            "dev/newstest2012-ref.de.sgm": sgm(old["de"], "de", "refset"),
        }
    )
    test_de, test_fr = de.take(30), fr.take(30)
    files["https://statmt.org/wmt14/test-full.tgz"] = tar(
        {
            **_test_set("test-full/newstest2014-deen", "en", "de", test_de),
            **_test_set("test-full/newstest2014-fren", "en", "fr", test_fr),
        }
    )
    filtered = {lang: lines[5:] for lang, lines in test_de.items()}
    files["https://statmt.org/wmt14/test-filtered.tgz"] = tar(_test_set("test/newstest2014-deen", "en", "de", filtered))
    stanford = de.take(200)
    for lang in ("en", "de"):
        lines = [line.replace("-", " ##AT##-##AT## ") for line in stanford[lang]]
        files[f"https://nlp.stanford.edu/projects/nmt/data/wmt14.en-de/train.{lang}"] = plain(lines)

    files[f"{data}/wmt18/translation-task/training-parallel-ep-v8.tgz"] = tar(
        _sides("training/europarl-v8.fi-en.{}", fi.take(200), "fi")
    )
    files[
        "https://s3.amazonaws.com/web-language-models/paracrawl/release1/"
        "paracrawl-release1.en-fi.zipporah0-dedup-clean.tgz"
    ] = tar(_sides("paracrawl-release1.en-fi.zipporah0-dedup-clean.{}", fi.take(100), "fi"))
    files["https://object.pouta.csc.fi/OPUS-ParaCrawl/v1/moses/en-fi.txt.zip"] = zipped(
        {**_sides("ParaCrawl.en-fi.{}", fi.take(90), "fi"), "README": b"terms\n"}
    )
    files[f"{data}/wmt18/translation-task/rapid2016.tgz"] = tar(_sides("rapid2016.en-fi.{}", fi.take(80), "fi"))
    titles = fi.take(50)
    files[f"{statmt}/wmt15/wiki-titles.tgz"] = tar(
        {"wiki/fi-en/titles.fi-en": plain(f"{a} ||| {b}" for a, b in zip(titles["fi"], titles["en"]))}
    )
    files["https://data.statmt.org/wmt17/translation-task/test.tgz"] = tar(
        {
            **_test_set("test/newstest2017-enfi", "en", "fi", fi.take(20)),
            **_test_set("test/newstest2017-zhen", "zh", "en", zh.take(20)),
        }
    )
    files["https://data.statmt.org/wmt18/translation-task/test.tgz"] = tar(
        {
            **_test_set("test/newstest2018-enfi", "en", "fi", fi.take(25)),
            **_test_set("test/newstest2018-zhen", "zh", "en", zh.take(25)),
        }
    )

    # only at the mirror, where it is a zip
    files[
        "https://huggingface.co/datasets/wmt/wmt18/resolve/main-zip/translation-task/training-parallel-nc-v13.zip"
    ] = zipped(_sides("training-parallel-nc-v13/news-commentary-v13.zh-en.{}", zh.take(150), "zh"))
    united = tar(_sides("en-zh/UNv1.0.en-zh.{}", zh.take(150), "zh"))
    for number, half in enumerate((united[:5000], united[5000:])):
        address = "https://www.un.org/dgacm/sites/www.un.org.dgacm/files/files/UNCORPUS/UNv1.0.en-zh.tar.gz.0"
        files[f"{address}{number}"] = half
    for name, number in (
        ("casia2015", 1),
        ("casict2011", 2),
        ("casict2015", 1),
        ("datum2015", 1),
        ("datum2017", 3),
        ("neu2017", 1),
    ):
        members = {}
        for i in range(number):
            lines, stem = zh.take(30), f"{name}/{'Book' if name == 'datum2017' else name}{i + 1}"
            members[f"{stem}_{'ch' if name == 'casict2011' else 'cn'}.txt"] = plain(lines["zh"])
            members[f"{stem}_en.txt"] = plain(lines["en"])
        files[f"https://huggingface.co/datasets/wmt/wmt18/resolve/main/cwmt-wmt/{name}.zip"] = zipped(members)
    done = zh.take(200)
    files[f"{data}/wmt18/translation-task/preprocessed/zh-en/corpus.gz"] = gzip.compress(
        plain(f"{' '.join(a)}\t{b}" for a, b in zip(done["zh"], done["en"]))
    )
    files["https://data.statmt.org/wmt17/translation-task/test-update-1.tgz"] = tar(
        _test_set("newstest2017-zhen", "zh", "en", zh.take(20))
    )
    files["https://data.statmt.org/wmt17/translation-task/dev.tgz"] = tar(
        _test_set("dev/newsdev2017-zhen", "zh", "en", zh.take(20))
    )

    files[f"{statmt}/europarl/v7/ro-en.tgz"] = tar(_sides("europarl-v7.ro-en.{}", ro.take(300), "ro"))
    setimes = ro.take(120)
    files["https://object.pouta.csc.fi/OPUS-SETIMES/v2/moses/en-ro.txt.zip"] = zipped(
        {**_sides("SETIMES.en-ro.{}", setimes, "ro"), "SETIMES.en-ro.ids": b"ids\n", "LICENSE": b"terms\n"}
    )
    files["https://object.pouta.csc.fi/OPUS-SETIMES/v2/tmx/en-ro.tmx.gz"] = gzip.compress(
        tmx(zip(setimes["en"], setimes["ro"]), ("en", "ro"))
    )
    files[f"{data}/wmt16/translation-task/training-parallel-ep-v8.tgz"] = tar(
        _sides("training-parallel-ep-v8/europarl-v8.ro-en.{}", ro.take(250), "ro")
    )
    files["https://data.statmt.org/wmt16/translation-task/dev.tgz"] = tar(
        _test_set("dev/newsdev2016-roen", "ro", "en", ro.take(20))
    )
    files["https://data.statmt.org/wmt16/translation-task/test.tgz"] = tar(
        _test_set("test/newstest2016-roen", "ro", "en", ro.take(25))
    )
    return files


PAIRS = {
    # numbers of lines in the archives above, in the order of the corpus files
    "wmt14_en_de": {"train": [250, 120, 40], "valid": [20], "test": [30], "subsets": [25]},
    "wmt14_en_fr": {"train": [150, 80, 60, 40, 70], "valid": [20], "test": [30]},
    "wmt18_en_fi": {"train": [200, 100, 80, 50], "valid": [20], "test": [25]},
    "wmt18_zh_en": {"train": [150, 150, 30, 60, 30, 30, 90, 30], "valid": [20], "test": [25]},
    "wmt16_ro_en": {"train": [300, 120], "valid": [20], "test": [25]},
    "wmt14_en_de stanford": {"train": [200]},
    "wmt14_en_de newstest2012_2013": {"valid": [18, 20]},
    "wmt18_en_fi opus_paracrawl": {"train": [200, 90, 80, 50]},
    "wmt18_zh_en preprocessed": {"train": [200]},
    "wmt18_zh_en newstest2017_improved": {"valid": [20]},
    "wmt18_zh_en newsdev2017": {"valid": [20]},
    "wmt16_ro_en europarl_v8": {"train": [250, 120]},
    "wmt16_ro_en setimes_tmx": {"train": [300, 120]},
}
TASKS = [name for name in PAIRS if " " not in name]


def local_configs(folder, server_url):
    """Make a copy of configs/ with addresses below ``server_url`` and the counts of the archives here."""
    shutil.copytree(ROOT / "configs", folder)
    for task in TASKS:
        path = folder / "corpus" / f"{task}.yaml"
        spec = yaml.safe_load(path.read_text(encoding="utf-8"))
        _localise(spec, PAIRS[task], server_url, task)
        for options in spec.get("choices", {}).values():
            for option, changes in options.items():
                _localise(changes, PAIRS.get(f"{task} {option}", {}), server_url, task)
        spec["reference_length"] = reference_length(test_reference(task))
        path.write_text(yaml.safe_dump(spec, allow_unicode=True, sort_keys=False), encoding="utf-8")
    return folder


def _localise(spec, counts, server_url, task):
    for split, numbers in counts.items():
        parts = list(spec[split].values()) if split == "subsets" else spec[split]
        assert len(parts) == len(numbers), (task, split)
        for part, number in zip(parts, numbers):
            part["pairs"] = number
            part.pop("tolerance", None)
    if "train_pairs" in spec:
        spec["train_pairs"] = {"pairs": sum(counts["train"])}
    if "kept" in spec:
        spec["kept"] = {"pairs": sum(counts["train"]), "tolerance": 0.05}
    for download in spec.get("downloads", {}).values():
        download["urls"] = [_local(entry, server_url, task) for entry in download["urls"]]


def _local(entry, server_url, task):
    """Return an entry of urls without checksums."""
    if isinstance(entry, dict):
        entry = entry["url"]
    if isinstance(entry, list):
        return [_local(part, server_url, task) for part in entry]
    scheme, _, rest = entry.partition("://")
    suffix = "?fr" if task == "wmt14_en_fr" and rest == "statmt.org/wmt13/test.tgz" else ""
    return f"{server_url}/{scheme}/{rest}{suffix}"


def served(files):
    """Return the archives by their path at the server of :func:`local_configs`."""
    return {"/" + address.replace("://", "/").replace("#", "?"): content for address, content in files.items()}


def reference_length(lines):
    return BLEU(tokenize="13a").corpus_score(lines, [lines]).ref_len


def test_reference(task):
    """Return the reference of a task's test set, read from its archive by the simplest code."""
    address, member = {
        "wmt14_en_de": ("https://statmt.org/wmt14/test-full.tgz", "test-full/newstest2014-deen-ref.de.sgm"),
        "wmt14_en_fr": ("https://statmt.org/wmt14/test-full.tgz", "test-full/newstest2014-fren-ref.fr.sgm"),
        "wmt18_en_fi": ("https://data.statmt.org/wmt18/translation-task/test.tgz", "test/newstest2018-enfi-ref.fi.sgm"),
        "wmt18_zh_en": ("https://data.statmt.org/wmt18/translation-task/test.tgz", "test/newstest2018-zhen-ref.en.sgm"),
        "wmt16_ro_en": ("https://data.statmt.org/wmt16/translation-task/test.tgz", "test/newstest2016-roen-ref.en.sgm"),
    }[task]
    with tarfile.open(fileobj=io.BytesIO(archives()[address])) as archive:
        text = archive.extractfile(member).read().decode()
    return [
        " ".join(line.split(">", 1)[1][: -len("</seg>")].split()) for line in text.split("\n") if line[:4] == "<seg"
    ]


test_reference.__test__ = False
