"""Members of every kind of archive are read whole or refused; nothing is unpacked."""

import gzip
import io
import os
import random
import tarfile
import warnings
import zipfile

import pytest
from fileserver import PAGE, tar_of, zip_of

from fairseq_rela.corpora.archives import kind, read_members, verify
from fairseq_rela.errors import InputError

NOISE = random.Random(1).getrandbits(8 * 200000).to_bytes(200000, "little")  # longer than every buffer when packed
MEMBERS = {"training/corpus.de": b"ein\nzwei\n" * 100, "training/corpus.en": NOISE, "README": b"read me\n"}
LF = b"one\ntwo\n"


def put(tmp_path, content, name="archive"):
    path = tmp_path / name
    path.write_bytes(content)
    return path


def content_of(path, wanted):
    return {name: file.read() for name, file in read_members(path, wanted)}


def refused(function, *arguments):
    """Return the one-line message."""
    with pytest.raises(InputError) as error:
        function(*arguments)
    assert "\n" not in str(error.value) and str(arguments[0]) in str(error.value)
    return str(error.value)


def tar_with(*entries):
    """Return a tar of (TarInfo, content) pairs."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for info, content in entries:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def entry(name, content=LF, type=tarfile.REGTYPE, target=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = type, target
    return info, content


PACKED = {
    "tar": tar_of(MEMBERS, ""),
    "tar.gz": tar_of(MEMBERS, "gz"),
    "zip": zip_of(MEMBERS),
    "gz": gzip.compress(NOISE, mtime=0),
}


@pytest.mark.parametrize("expected", PACKED)
@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a"])
def test_the_kind_is_recognised_by_content(tmp_path, expected, name):
    path = put(tmp_path, PACKED[expected], name)
    assert kind(path) == expected
    verify(path)


def test_content_of_no_other_kind_is_a_plain_file(tmp_path):
    for content in (LF, b"\x1f", b"P", b"x" * 600):
        path = put(tmp_path, content)
        assert kind(path) == "plain"
        verify(path)


@pytest.mark.parametrize("packed", [name for name in PACKED if name.startswith(("tar", "zip"))])
def test_members_come_in_the_order_of_the_archive(tmp_path, packed):
    path = put(tmp_path, PACKED[packed])
    given = [(name, file.read()) for name, file in read_members(path, ["README", "./training/corpus.*"])]
    assert given == list(MEMBERS.items())
    for _, file in read_members(path, ["training/corpus.de"]):
        assert list(file) == [b"ein\n", b"zwei\n"] * 100
    assert file.closed
    assert os.listdir(tmp_path) == ["archive"]


def test_a_star_does_not_cross_folders(tmp_path):
    path = put(tmp_path, tar_of({"a/x.de": b"1", "a/b/x.de": b"2", "x.de": b"3", "a/X.de": b"4"}))
    assert content_of(path, ["*/x.de"]) == {"a/x.de": b"1"}
    assert content_of(path, ["*.de"]) == {"x.de": b"3"}


def test_gzipped_members_of_a_gzipped_tar_are_read(tmp_path):
    """The Giga corpus has this form, and is called .tar."""
    path = put(
        tmp_path,
        tar_of({"./giga.fr.gz": gzip.compress(NOISE, mtime=0), "giga.en.gz": gzip.compress(LF, mtime=0)}),
        "giga.tar",
    )
    assert kind(path) == "tar.gz"
    assert content_of(path, ["giga.fr.gz", "giga.en.gz"]) == {"giga.fr.gz": NOISE, "giga.en.gz": LF}


@pytest.mark.parametrize(
    "content", [LF, gzip.compress(LF, mtime=0), gzip.compress(b"one\n", mtime=0) + gzip.compress(b"two\n", mtime=0)]
)
def test_a_single_file_is_its_own_member(tmp_path, content):
    path = put(tmp_path, content, "corpus.gz")
    assert content_of(path, ["anything"]) == {"corpus.gz": LF}
    assert "2 members" in refused(content_of, path, ["a", "b"])


def test_a_tar_of_two_gzip_members_is_read_to_its_end(tmp_path):
    tar = tar_of(MEMBERS, "")
    path = put(tmp_path, gzip.compress(tar[:1536], mtime=0) + gzip.compress(tar[1536:], mtime=0))
    assert content_of(path, ["training/*"])["training/corpus.en"] == NOISE


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("part", [0.3, 0.9, 0.9999])
def test_a_truncated_archive_is_refused(tmp_path, packed, part):
    path = put(tmp_path, PACKED[packed][: int(len(PACKED[packed]) * part)])
    if packed == "tar" and part == 0.9999:
        return  # only padding is lost
    assert "damaged or truncated" in refused(verify, path)
    assert "damaged or truncated" in refused(content_of, path, ["training/*"] if len(packed) != 2 else [""])


def test_a_zip_with_an_unsupported_method_is_refused(tmp_path):
    """Windows packs files of more than 2 GB by deflate64."""
    content = PACKED["zip"]
    for mark, place in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        at = content.index(mark) + place
        content = content[:at] + b"\x09\0" + content[at + 2 :]
    for function, arguments in ((verify, ()), (content_of, (["training/*"],))):
        assert "a kind of archive that is not supported" in refused(function, put(tmp_path, content), *arguments)


def test_a_tar_cut_between_members_is_refused(tmp_path):
    """tarfile itself reads such a cut as the end of the archive."""
    path = put(tmp_path, tar_with(entry("a"), entry("b"))[:1024])
    assert "before the end marker" in refused(verify, path)
    assert "before the end marker" in refused(content_of, path, ["a"])


def test_a_tar_with_a_damaged_header_in_the_middle_is_refused(tmp_path):
    tar = bytearray(tar_with(entry("a"), entry("b"), entry("c")))
    tar[1024] ^= 255
    assert "bad checksum before the end marker" in refused(verify, put(tmp_path, bytes(tar)))


def test_a_second_tar_behind_the_end_is_refused_and_padding_is_not(tmp_path):
    tar = tar_with(entry("a"))
    assert "data after the end of the archive" in refused(verify, put(tmp_path, tar + tar))
    verify(put(tmp_path, tar + bytes(100000)))
    verify(put(tmp_path, tar[:-1000] + b"junk" * 250))


@pytest.mark.parametrize("packed", ["tar.gz", "zip", "gz"])
def test_a_wrong_byte_is_refused(tmp_path, packed):
    content = bytearray(PACKED[packed])
    content[len(content) // 2] ^= 1
    path = put(tmp_path, bytes(content))
    assert "damaged or truncated" in refused(verify, path)
    assert "damaged or truncated" in refused(
        content_of, path, ["training/*"] if len(packed) > 3 or packed == "zip" else [""]
    )


def test_a_wrong_checksum_of_a_gzipped_tar_is_refused(tmp_path):
    """tarfile's own streaming does not compare the checksum."""
    content = bytearray(PACKED["tar.gz"])
    content[-8] ^= 1
    path = put(tmp_path, bytes(content))
    assert "CRC" in refused(verify, path)
    assert "CRC" in refused(content_of, path, ["README"])


@pytest.mark.parametrize("packed", ["gz", "tar.gz"])
def test_garbage_behind_gzip_is_refused(tmp_path, packed):
    assert "damaged" in refused(verify, put(tmp_path, PACKED[packed] + b"garbage"))


@pytest.mark.parametrize(
    "page",
    [
        PAGE,
        b"<html>",
        b"\n \t<HTML lang=en>",
        b"\xef\xbb\xbf<!doctype  html>",
        b'<?xml version="1.0"?>\n<!-- x -->\n<!DOCTYPE html PUBLIC>',
        gzip.compress(PAGE, mtime=0),
    ],
)
def test_a_web_page_is_refused(tmp_path, page):
    assert "a web page instead of the file" in refused(verify, put(tmp_path, page))


@pytest.mark.parametrize("text", [b'<srcset setid="x">\n', b"<!DOCTYPE mteval>\n", b"<htmlish\n", b"a <html>\n"])
def test_text_that_only_resembles_a_web_page_is_accepted(tmp_path, text):
    verify(put(tmp_path, text))


def test_empty_files_and_files_of_zeros_are_refused(tmp_path):
    assert "empty file" in refused(verify, put(tmp_path, b""))
    assert "zero bytes" in refused(verify, put(tmp_path, bytes(10240)))
    assert "cannot be read" in refused(verify, tmp_path / "absent")


def test_a_missing_member_is_named_together_with_the_members_there_are(tmp_path):
    path = put(tmp_path, tar_of({f"training/corpus.{lang}": b"x" for lang in ("de", "en", "fr", "cs", "ru", "fi")}))
    message = refused(content_of, path, ["training/corpus.de", "training/corpus.es"])
    assert "no member training/corpus.es; it has training/corpus." in message
    assert message.count("training/corpus.") == 1 + 5
    assert "no member *.de" in refused(content_of, path, ["*.de"])


HOSTILE = {
    "../../x": tar_with(entry("../../x")),
    "a/../../x": zip_of({"a/../../x": b"x"}),
    "/tmp/x": tar_with(entry("/tmp/x")),
    "link": tar_with(entry("link", b"", tarfile.SYMTYPE, "/etc/passwd")),
    "hard": tar_with(entry("other"), entry("hard", b"", tarfile.LNKTYPE, "other")),
    "fifo": tar_with(entry("fifo", b"", tarfile.FIFOTYPE)),
    "device": tar_with(entry("device", b"", tarfile.CHRTYPE)),
    "twice": tar_with(entry("twice"), entry("./twice")),
    "empty.gz": tar_with(entry("empty.gz", b"")),
    "bro\nken": tar_with(entry("bro\nken"), entry("bro\nken")),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_members_are_refused_if_requested_and_never_written(tmp_path, monkeypatch, name):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    path = put(inner, HOSTILE[name])
    message = refused(content_of, path, [name])
    assert "; fetch the archive from another place" in message
    with pytest.raises(InputError, match="no member"):
        content_of(path, ["not there"])
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [path] and not os.path.exists("/tmp/x")


def test_a_link_in_a_zip_and_a_repeated_name_are_refused(tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        link = zipfile.ZipInfo("link")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("twice", "1")
        archive.writestr("twice", "2")
        archive.writestr("folder/", "")
    path = put(tmp_path, buffer.getvalue())
    assert "member link is a link" in refused(content_of, path, ["link"])
    assert "member twice is there twice" in refused(content_of, path, ["tw*"])
    assert "no member folder" in refused(content_of, path, ["folder"])


def test_an_encrypted_zip_is_refused(tmp_path):
    content = bytearray(zip_of({"secret": LF}))
    content[6] |= 1  # the flag in the member's own header,
    content[content.index(b"PK\x01\x02") + 8] |= 1  # and in the directory
    path = put(tmp_path, bytes(content))
    assert "secret is encrypted" in refused(verify, path)
    assert "member secret is encrypted" in refused(content_of, path, ["secret"])


@pytest.mark.parametrize(
    "inner", [gzip.compress(NOISE, mtime=0)[:-9], gzip.compress(NOISE, mtime=0) + b"junk", b"no gzip at all"]
)
def test_a_damaged_gzipped_member_is_named_when_read(tmp_path, inner):
    path = put(tmp_path, tar_of({"x/giga.en.gz": inner}))
    verify(path)  # the tar itself is whole
    assert "x/giga.en.gz: damaged or truncated" in refused(content_of, path, ["x/*.gz"])


def test_a_header_of_a_gigabyte_is_not_held_in_memory(tmp_path):
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1 << 30
    assert "impossible size" in refused(verify, put(tmp_path, info.tobuf(tarfile.GNU_FORMAT) + bytes(1024)))


def test_half_read_members_do_not_disturb_the_next_member(tmp_path):
    path = put(tmp_path, PACKED["tar.gz"])
    files = []
    for name, file in read_members(path, ["training/*", "README"]):
        files.append((name, file.read(3)))
    assert files == [(name, content[:3]) for name, content in MEMBERS.items()]
