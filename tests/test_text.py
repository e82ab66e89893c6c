"""Raw text to tokens and back.

With ``MOSES=<checkout of moses-smt/mosesdecoder>`` the results are also compared with the Perl scripts.
"""

import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import run
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sacremoses import MosesPunctNormalizer
from test_lines import BREAKS

from fairseq_rela.errors import InputError
from fairseq_rela.text import moses
from fairseq_rela.text import preprocess as text
from fairseq_rela.text.preprocess import Detokeniser, Preprocessor, clean_characters, repair_tokens

WILD = st.text(st.characters(blacklist_categories=("Cs",)), max_size=60)
LANGUAGES = ("en", "de", "fr", "fi", "sv", "ro")
MOSES = os.environ.get("MOSES")
needs_moses = pytest.mark.skipif(MOSES is None, reason="MOSES is not set to a checkout of moses-smt/mosesdecoder")
needs_perl = pytest.mark.skipif(shutil.which("perl") is None, reason="no perl")

# characters that the rules use, and letters of several scripts
PARTS = (
    *"aAbBsSxéÄöșŞțßyzN5½²_~^*=+/@#%&|<>()[]{}.,:;!?'\"`-–—…„“”‘’‚«»€$°º´\xa0\u2009\u202f\u0301\u0326\xad\u200b中ह\u094d",
    *("12", "1.000", "Mr", "etc", "z.B", "EU", "YK", "ssa", "St", "Nr", "No", "..", "...", "''", "n't", "'s", "😀"),
    *[" "] * 25,
)


def made_up_lines(number, seed=0):
    pick = random.Random(seed)
    return ["".join(pick.choices(PARTS, k=pick.randrange(60))) for _ in range(number)]


def perl(script, *arguments, lines):
    """Return the lines of a script of Moses with single spaces; Perl leaves a space at the end of some lines."""
    command = ["perl", Path(MOSES, "scripts", script), *arguments]
    result = subprocess.run(command, input="".join(f"{line}\n" for line in lines).encode(), stdout=subprocess.PIPE)
    output = result.stdout.decode().split("\n")[:-1]
    assert len(output) == len(lines)
    return output


@settings(deadline=None, max_examples=200)
@given(line=WILD)
def test_any_line_stays_one_line(line):
    """B04: no character is left at which fairseq, Python or subword-nmt end a line or split a token."""
    for tokeniser in ("moses", "none"):
        tokens = Preprocessor("de", tokeniser)(line)
        assert tokens == " ".join(tokens.split()) == " ".join(re.split(r"\s+", tokens))
        assert len(tokens.splitlines()) <= 1
        assert not set(tokens) & set(BREAKS)
        assert not {"<s>", "</s>", "<pad>", "<unk>"} & set(tokens.split())
        assert "@@" not in tokens


@pytest.mark.parametrize("character", BREAKS)
def test_characters_that_break_lines_become_spaces(character):
    assert clean_characters(f" a{character}b{character}") == "a b"


@pytest.mark.parametrize(
    "lang, text, tokens",
    [
        # Moses moves the period after the quote, in German also at the end of the line
        ("de", 'Er sagte: "Ja, gut."', "Er sagte : &quot; Ja , gut &quot; ."),
        ("en", 'He said: "Yes."', "He said : &quot; Yes . &quot;"),
        ("en", "It's a well-known fact.", "It &apos;s a well @-@ known fact ."),
        ("de", "Art.", "Art ."),  # Moses splits the last period of a line even after an abbreviation
        ("en", "A & B | C <unk> [x]", "A &amp; B &#124; C &lt; unk &gt; &#91; x &#93;"),
        ("de", "„So“ – ja…", "&quot; So &quot; - ja ..."),
        ("en", "so ... and so.. .", "so ... and so .. ."),
        ("fi", '"ja," hän', "&quot; ja &quot; , hän"),
        ("en", "It’s the ‘so-called’ dogs’ x.", "It &apos;s the &quot; so @-@ called &quot; dogs &quot; x ."),
        ("en", "He went to the U.S.", "He went to the U.S ."),
        (
            "en",
            "Mr. Smith paid No. 5, not no. 6, i.e. $1,000.50.",
            "Mr. Smith paid No. 5 , not no . 6 , i.e. $ 1,000.50 .",
        ),
        ("en", "the end.'", "the end . &apos;"),
        ("en", "see 中文 and हिन्दी at http://x.org/a?b=1", "see 中文 and हिन ् दी at http : / / x.org / a ? b = 1"),
        ("en", "a\u2009b 5\xa0% e\u0301 😀 5️⃣", "a b 5 % e \u0301 😀 5 \ufe0f \u20e3"),
        (
            "de",
            "ein ,Schwanz‘ links – am 5. Mai, z.B. 1\xa0000 km.",
            "ein , Schwanz &quot; links - am 5. Mai , z.B. 1,000 km .",
        ),
        ("fi", "YK:n ja EU:ssa: klo 12:30, USA:N", "YK:n ja EU:ssa : klo 12 : 30 , USA : N"),
        ("sv", "S:t Eriks EU:s kl. 5: ja", "S:t Eriks EU:s kl. 5 : ja"),
        ("ro", "„Da”, ș și ț; 5 %.", "&quot; Da &quot; , ș și ț ; 5 % ."),
    ],
)
def test_tokens_equal_those_of_moses(lang, text, tokens):
    """The tokens are output of Moses' normalize-punctuation, remove-non-printing-char and tokenizer -a."""
    assert Preprocessor(lang)(text) == tokens


@needs_moses
@pytest.mark.parametrize("lang", LANGUAGES)
def test_tokens_equal_those_of_the_perl_scripts(lang):
    lines = made_up_lines(1000)
    if lang == "ro":  # whose letters are normalised by other scripts
        lines = [re.sub("[Şş\u0326]", "", line) for line in lines]
    expected = perl("tokenizer/normalize-punctuation.perl", "-l", lang, lines=lines)
    expected = perl("tokenizer/remove-non-printing-char.perl", lines=expected)
    expected = perl("tokenizer/tokenizer.perl", "-a", "-q", "-l", lang, lines=expected)
    expected = [" ".join(line.split()) for line in expected]
    preprocess = Preprocessor(lang)
    assert [preprocess(line) for line in lines] == expected
    assert Preprocessor(lang, moses_scripts=Path(MOSES)).process_lines(lines) == expected


@settings(deadline=None, max_examples=300)
@given(line=st.lists(st.sampled_from(PARTS), max_size=40).map("".join), lang=st.sampled_from(LANGUAGES))
def test_skipped_rules_would_change_no_text(line, lang):
    normaliser = moses.Normaliser(lang)
    assert normaliser.normalize(line).strip() == MosesPunctNormalizer.normalize(normaliser, line)


@pytest.mark.parametrize(
    "lang, text",
    [
        ("de", 'Er sagte: "Ja, gut".'),
        ("en", "It's a well-known fact, isn't it?"),
        ("en", "A & B < C > D (x), 50% of $3."),
        ("fr", "L'homme n'est pas là."),
        ("de", "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche."),
    ],
)
def test_tokenised_text_is_detokenised(lang, text):
    assert Detokeniser(lang)(Preprocessor(lang)(text)) == text


@pytest.mark.parametrize(
    "lang, tokens, line",
    [
        ("fi", "EU : n ja YK : ssa : ei", "EU:n ja YK:ssa: ei"),
        ("en", "Ö &quot; &apos;s it , the dogs &apos; 5 &apos;m", "Ö \"'s it, the dogs' 5'm"),
        ("en", "₾ 5 &#91; x &#93; a @-@ b", "₾5 [x] a-b"),
        ("fr", "l&apos; homme dit : ₿ 5 !", "l'homme dit : ₿5 !"),
    ],
)
def test_detokenised_text_equals_that_of_moses(lang, tokens, line):
    """The text is output of Moses' detokenizer.perl."""
    assert Detokeniser(lang)(tokens) == line


@needs_moses
@pytest.mark.parametrize("lang", LANGUAGES)
def test_detokenised_text_equals_that_of_the_perl_script(lang):
    tokens = Preprocessor(lang).process_lines(made_up_lines(1000))
    expected = perl("tokenizer/detokenizer.perl", "-q", "-l", lang, lines=tokens)
    assert [Detokeniser(lang)(line) for line in tokens] == [" ".join(line.split(" ")).strip() for line in expected]


@needs_perl
@pytest.mark.parametrize(
    "normalise, tokenise, message",
    [
        ("print while <STDIN>;", 'die "no prefixes\\n";', "tokenizer.perl failed with exit status .*: no prefixes$"),
        ("print while <STDIN>;", "print scalar <STDIN>;", "tokenizer.perl made 1 lines of 2"),
        ("print while <STDIN>;", None, "tokenizer.perl: no such script; give the folder of a checkout"),
    ],
)
def test_failing_scripts_give_one_line(tmp_path, normalise, tokenise, message):
    folder = tmp_path / "scripts" / "tokenizer"
    folder.mkdir(parents=True)
    for name, code in (("normalize-punctuation.perl", normalise), ("tokenizer.perl", tokenise)):
        if code is not None:
            (folder / name).write_text(code)
    with pytest.raises(InputError, match=message) as error:
        Preprocessor("de", moses_scripts=tmp_path).process_lines(["a", "b"])
    assert "\n" not in str(error.value)


@needs_perl
@settings(deadline=None, max_examples=15)
@given(lines=st.lists(st.text(max_size=20), max_size=5))
def test_scripts_receive_one_line_for_each_line(tmp_path_factory, lines):
    """Lines have any content, including surrogates; the scripts here do not change it."""
    folder = tmp_path_factory.mktemp("moses")
    (folder / "scripts" / "tokenizer").mkdir(parents=True)
    for name in ("normalize-punctuation.perl", "tokenizer.perl"):
        (folder / "scripts" / "tokenizer" / name).write_text("print while <STDIN>;")
    tokens = Preprocessor("de", moses_scripts=folder).process_lines(lines)
    assert tokens == [clean_characters(re.sub("@(?=@)", "@ ", line)) for line in lines]


@settings(deadline=None, max_examples=100)
@given(line=st.lists(st.sampled_from([*PARTS, *"șȘțȚăĂâÂîÎ"]), max_size=30).map("".join))
@example(line="a‘ș")
def test_romanian_letters_are_normalised_from_all_their_forms(line):
    comma, plain = Preprocessor("ro"), Preprocessor("ro", remove_diacritics=True)
    forms = [
        line.translate(str.maketrans("șȘțȚ", "şŞţŢ")),
        re.sub("[șȘțȚ]", lambda letter: dict(zip("șȘțȚ", "sStT"))[letter.group()] + "\u0326", line),
        re.sub("[șȘțȚ]", lambda letter: dict(zip("șȘțȚ", "sStT"))[letter.group()] + "\u0327", line),
    ]
    assert {comma(form) for form in forms} == {comma(line)}
    assert {plain(form) for form in forms} == {plain(line)}
    assert not set(plain(line)) & set("șȘțȚăĂâÂîÎşŞţŢ")


def test_romanian_text_is_tokenised_with_and_without_diacritics():
    assert Preprocessor("ro")("Ţară şi ŞTIINŢĂ în câmp") == "Țară și ȘTIINȚĂ în câmp"
    assert Preprocessor("ro", remove_diacritics=True)("Ţară şi ŞTIINŢĂ în câmp") == "Tara si STIINTA in camp"
    assert Preprocessor("de")("Ţ ş") == "Ţ ş"
    with pytest.raises(InputError, match="from Romanian"):
        Preprocessor("en", remove_diacritics=True)


CHINESE = [
    "为   3.5%，同比（2017年）增长。",
    "他在 New York 买了 iPhone 7，说：“很好！”",
    "中国经济  A & B|C [x] <unk>",
]


def test_chinese_is_segmented_like_jiebas_own_command(tmp_path):
    pytest.importorskip("jieba")
    path = tmp_path / "text"
    path.write_text("".join(f"{line}\n" for line in CHINESE), encoding="utf-8")
    result = run(
        sys.executable, "-W", "ignore", "-m", "jieba", "-q", "-d", " ", path, env={"PYTHONIOENCODING": "utf-8"}
    )
    assert result.returncode == 0, result.stderr
    expected = [" ".join(line.split()) for line in result.stdout.split("\n")[:-1]]
    assert Preprocessor("zh").process_lines(CHINESE) == expected
    assert any(" 经济 " in line for line in expected)


@settings(deadline=None, max_examples=100)
@given(line=WILD | st.lists(st.sampled_from(["中国", "经济", "<unk>", "</s>", "@@", *PARTS])).map("".join))
def test_special_symbols_in_chinese_are_escaped(line):
    pytest.importorskip("jieba")
    tokens = Preprocessor("zh")(line)
    assert tokens == " ".join(tokens.split()) and len(tokens.splitlines()) <= 1
    assert "@@" not in tokens and not {"<s>", "</s>", "<pad>", "<unk>"} & set(tokens.split())
    assert tokens.replace(" ", "") == re.sub(r"\s", "", clean_characters(line))


def test_chinese_is_detokenised_without_spaces():
    assert Detokeniser("zh")("他 在 New York 买 了 iPhone 7 。 “ 好 ！ ”") == "他在 New York 买了 iPhone 7 。“好！”"


def test_full_width_letters_and_digits_stay_in_chinese_unless_normalised():
    pytest.importorskip("jieba")
    line = "ＡＢＣ１２３，好。"
    assert Preprocessor("zh")(line) == "Ａ Ｂ Ｃ １ ２ ３ ， 好 。"
    assert Preprocessor("zh", normalise_width=True)(line) == "ABC123 ， 好 。"
    assert Preprocessor("de", "none", normalise_width=True)(line) == "ABC123，好。"
    assert Preprocessor("de", normalise_width=True).process_lines(["ｚ９"]) == ["z9"]


def test_chinese_without_jieba_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "jieba", None)
    text._jieba_cut.cache_clear()
    with pytest.raises(InputError, match="pip install jieba"):
        Preprocessor("zh")
    assert Preprocessor("zh", "none")("a  b") == "a b"


@pytest.mark.parametrize("version, tested", [("0.1.1", True), ("0.2.0", True), ("0.2.7", True), ("0.3.0", False)])
def test_untested_versions_of_sacremoses_are_refused(version, tested, monkeypatch):
    monkeypatch.setattr(moses.metadata, "version", lambda name: version)
    for make in (Preprocessor, Detokeniser):
        if tested:
            assert make("en")("a b")
        else:
            with pytest.raises(InputError, match=f"sacremoses {version}: .*pip install 'sacremoses>=0.1,<0.3'"):
                make("en")
        assert make("en", "none")("a b") == "a b"


def test_unknown_languages_are_treated_as_english():
    assert Preprocessor("xa")("a b's.") == Preprocessor("en")("a b's.") == "a b &apos;s ."


def test_already_tokenised_text_is_only_escaped():
    assert Preprocessor("de", "none")(" a  b. <unk> c@@ ") == "a b. &lt;unk&gt; c@ @"
    assert Detokeniser("de", "none")("a b. &lt;x") == "a b. &lt;x"
    # BPE can make such a piece from the end of a word, and fairseq's dictionary would read it as padding
    assert Preprocessor("de", "none")("<s>a</s> b<pad> <<unk>>") == "&lt;s&gt;a&lt;/s&gt; b&lt;pad&gt; <&lt;unk&gt;>"
    assert Preprocessor("de", "none")("a</w>b </w>") == "a&lt;/w&gt;b &lt;/w&gt;"


@pytest.mark.parametrize(
    "published, tokens",
    [
        ("rich ##AT##-##AT## text format", "rich @-@ text format"),
        ("China & apos ; s 3 & lt ; 5 & amp ; s", "China &apos;s 3 &lt; 5 &amp; s"),
        ("the workers & apos ; strike & quot ; x", "the workers &apos; strike &quot; x"),
        ("a & b ; c &apos;s", "a & b ; c &apos;s"),
    ],
)
def test_published_tokens_are_converted_to_those_of_moses(published, tokens):
    assert repair_tokens(published) == tokens
