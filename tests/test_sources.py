"""A download gives the right, complete file or none: against a server with every kind of fault (B21)."""

import errno
import fcntl
import hashlib
import itertools
import json
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from unittest import mock

import pytest
from conftest import ROOT
from fileserver import Fault, FileServer, tar_of, zip_of

from fairseq_rela.corpora import download as sources
from fairseq_rela.corpora import transfer
from fairseq_rela.corpora.archives import read_members
from fairseq_rela.corpora.download import fetch, fetch_all, sizes
from fairseq_rela.corpora.spec import Download, Mirror, parse_downloads
from fairseq_rela.errors import InputError

NOISE = random.Random(2).getrandbits(8 * 300000).to_bytes(300000, "little")
MEMBERS = {"training/corpus.en": NOISE, "training/corpus.de": b"ein\n"}
TGZ = tar_of(MEMBERS)
ZIP = zip_of(MEMBERS)
TEXT = b"one line\n" * 40000
HALF = 1 << 17  # bytes after which connections are cut


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with FileServer({"/a.tgz": TGZ, "/b.tgz": TGZ, "/c.zip": ZIP, "/text": TEXT}) as server:
        yield server


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "downloads"


def download(server, *paths, name="a.tgz", **known):
    return Download(name, tuple(Mirror((server.url(path),), **known) for path in paths))


def get(item, folder, offline=None, tries=5, timeout=5, wait=None):
    """Return the path from fetch, without its pauses, which are recorded in ``get.pauses``."""
    get.pauses = []
    pauses = mock.patch.object(transfer, "sleep", wait or get.pauses.append)
    with pauses, mock.patch.multiple(transfer, _TRIES=tries, _TIMEOUT=timeout):
        return fetch(item, folder, offline)[0]


def refused(item, folder, **options):
    """Return the one-line message; no file has appeared under the final name."""
    before = (folder / item.name).exists()
    with pytest.raises(InputError) as error:
        get(item, folder, **options)
    assert "\n" not in str(error.value) and (folder / item.name).exists() == before
    return str(error.value)


def left(folder):
    return sorted(path.name for path in folder.iterdir())


def record(folder, name="a.tgz"):
    return json.loads((folder / f"{name}.json").read_text())


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def md5(content):
    return hashlib.md5(content).hexdigest()


# --- a good server -----------------------------------------------------------------------------------------------


def test_a_download_gives_the_file_and_its_record(server, folder):
    path = get(download(server, "/a.tgz", md5=md5(TGZ), sha256=sha256(TGZ), bytes=len(TGZ)), folder)
    assert path == folder / "a.tgz" and path.read_bytes() == TGZ
    assert record(folder) == [
        {"url": [server.url("/a.tgz")], "bytes": len(TGZ), "sha256": sha256(TGZ), "md5": md5(TGZ), "content": "tar.gz"}
    ]
    assert left(folder) == ["a.tgz", "a.tgz.json"]
    assert get(download(server, "/a.tgz"), folder) == path and len(server.requests) == 1


def test_parts_are_joined(server, folder):
    paths = "/x.tgz.00", "/x.tgz.01"
    server.files.update(zip(paths, (TGZ[:HALF], TGZ[HALF:])))
    server.faults.update({path: Fault(cut=1 << 16, times=1) for path in paths})
    item = Download("x.tgz", (Mirror(tuple(map(server.url, paths))),))
    assert get(item, folder).read_bytes() == TGZ and left(folder) == ["x.tgz", "x.tgz.json"]
    assert server.gets(paths[0]) == server.gets(paths[1]) == [None, f"bytes={1 << 16}-"]
    assert record(folder, "x.tgz")[0]["url"] == list(item.mirrors[0].parts)
    swapped = Download("y.tgz", (Mirror(item.mirrors[0].parts[::-1]),))
    assert "not the archive that its name promises" in refused(swapped, folder)


def test_parts_are_deleted_if_another_mirror_gives_the_file(server, folder):
    server.files.update({"/x.tgz.00": TGZ[:HALF], "/x.tgz.01": TGZ[HALF:]})
    server.faults["/x.tgz.01"] = Fault(cut=1 << 16, times=1)
    real = server.note
    server.note = lambda request: real(request) if len(server.gets("/x.tgz.01")) < 1 else note_gone(request)

    def note_gone(request):
        fault = real(request)
        return Fault(status=404) if request.path == "/x.tgz.01" else fault

    halves = Mirror((server.url("/x.tgz.00"), server.url("/x.tgz.01")))
    assert get(Download("x", (halves, Mirror((server.url("/a.tgz"),)))), folder).read_bytes() == TGZ
    assert len(server.gets("/x.tgz.01")) == 2 and left(folder) == ["x", "x.json"]


def test_a_zip_is_accepted_instead_of_a_tgz(server, folder):
    server.faults["/a.tgz"] = Fault(status=404)
    path = get(download(server, "/a.tgz", "/c.zip"), folder)
    assert record(folder)[0]["content"] == "zip"
    assert {name: file.read() for name, file in read_members(path, ["training/*"])} == MEMBERS


def test_a_content_encoding_of_the_archive_itself_is_not_decoded(server, folder):
    """Apache sends such headers for a tgz."""
    server.faults["/a.tgz"] = Fault(headers={"Content-Encoding": "x-gzip", "Content-Type": "application/x-tar"})
    assert get(download(server, "/a.tgz"), folder).read_bytes() == TGZ


def test_redirects_are_followed_only_to_the_web(server, folder):
    server.faults["/r"] = Fault(status=302, headers={"Location": "/a.tgz"})
    assert get(download(server, "/r"), folder).read_bytes() == TGZ
    server.faults["/r"] = Fault(status=302, headers={"Location": "file:///etc/passwd"})
    assert "No connection adapters" in refused(download(server, "/r", name="b"), folder)


# --- bad connections ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", ["stated", "chunked"])
def test_a_cut_connection_is_resumed(server, folder, length):
    server.faults["/a.tgz"] = Fault(cut=HALF, times=1, length=length)
    assert get(download(server, "/a.tgz"), folder).read_bytes() == TGZ
    first, second = server.gets("/a.tgz")
    assert first is None and re.fullmatch(r"bytes=(65536|131072)-", second)
    assert get.pauses == [1.0]


def test_a_connection_that_always_breaks_gives_the_file_in_parts(server, folder):
    server.faults["/a.tgz"] = Fault(cut=1 << 16)
    assert get(download(server, "/a.tgz"), folder, tries=2).read_bytes() == TGZ
    assert server.gets("/a.tgz")[1:] == [f"bytes={n << 16}-" for n in range(1, 5)]


def test_a_download_without_progress_ends_and_keeps_the_part(server, folder):
    server.faults["/a.tgz"] = Fault(cut=HALF, times=1)
    real = server.note

    def note(request):
        fault = real(request)
        return fault if fault.cut else Fault(cut=0)

    server.note = note
    message = refused(download(server, "/a.tgz"), folder, tries=3)
    assert re.search(r"the connection was cut.*, after 3 tries\)", message)
    assert f"fetch it by hand to {folder} and give --offline {folder}" in message
    assert left(folder) == ["a.tgz.part", "a.tgz.part.json"] and get.pauses == [1.0, 2.0]
    server.note = real
    assert get(download(server, "/b.tgz", "/a.tgz"), folder).read_bytes() == TGZ
    assert server.gets("/b.tgz") == [] and server.gets("/a.tgz")[-1] == f"bytes={HALF}-"


@pytest.mark.parametrize(
    "fault, requests",
    [
        (Fault(ranges=False), 1),  # 200 to a Range request
        (Fault(etag='"other"'), 2),  # 206 of another file
        (Fault(shift=5), 2),  # 206 that begins elsewhere
        (Fault(status=416, times=1), 2),
    ],
)
def test_downloads_that_cannot_be_resumed_start_again(server, folder, fault, requests):
    """The file is plain text, in which only this check finds a mixture of two files."""
    item = download(server, "/text", name="text")
    if fault.etag:
        server.files["/text"] = TEXT.upper()
    server.faults["/text"] = Fault(cut=HALF)
    with pytest.raises(KeyboardInterrupt):
        get(item, folder, wait=interrupt)
    assert left(folder) == ["text.part", "text.part.json"]
    server.files["/text"] = TEXT
    server.faults["/text"] = fault
    server.requests.clear()
    assert get(item, folder).read_bytes() == TEXT
    assert server.gets("/text") == [f"bytes={HALF}-", None][:requests]


def interrupt(_):
    raise KeyboardInterrupt


def test_without_a_validator_downloads_are_not_resumed(server, folder):
    server.faults["/a.tgz"] = Fault(cut=HALF, times=1, validators=False)
    assert get(download(server, "/a.tgz"), folder).read_bytes() == TGZ
    assert server.gets("/a.tgz") == [None, None]


def resumed(server, folder, path, content, fault):
    """Cut the download after HALF, then serve another file with other answers."""
    server.faults[path] = Fault(cut=HALF, times=1)

    def change(_):
        server.files[path], server.faults[path] = content, fault

    item = download(server, path, name=path[1:])
    return get(item, folder, wait=change).read_bytes()


def test_a_part_without_proof_of_its_version_is_not_resumed(server, folder):
    """The server ignores If-Range and names no version; plain text has no checksum that finds a mixture."""
    other = TEXT.upper()
    fault = Fault(if_range=False, validators=False)
    assert resumed(server, folder, "/text", other, fault) == other
    assert server.gets("/text") == [None, f"bytes={HALF}-", None]


def test_a_file_whose_size_changes_meanwhile_is_fetched_again(server, folder):
    same_etag = f'"{md5(TEXT)}"'
    longer, shorter = TEXT * 2, TEXT[:HALF]
    for name, other in (("x", longer), ("y", shorter)):  # 206 with another total size; 416, as the part is complete
        path = f"/{name}.txt"
        server.files[path] = TEXT
        assert resumed(server, folder, path, other, Fault(etag=same_etag, if_range=False)) == other
        assert server.gets(path)[-1] is None


@pytest.mark.parametrize("where", ["http://[bad/", "/caf\xe9"])
def test_a_redirect_without_a_valid_address_uses_the_next_mirror(server, folder, where):
    server.files["/gone"] = b""
    server.faults["/gone"] = Fault(status=302, headers={"Location": where})
    assert get(download(server, "/gone", "/a.tgz"), folder).read_bytes() == TGZ
    assert "no mirror gives it" in refused(download(server, "/gone", name="x"), folder)
    assert sizes({"x": download(server, "/gone", "/a.tgz", name="x")}, folder)["x"] == len(TGZ)


def test_a_length_of_a_thousand_digits_is_ignored(server, folder):
    server.faults["/a.tgz"] = Fault(headers={"Content-Length": "9" * 5000})
    assert "no mirror gives it" in refused(download(server, "/a.tgz"), folder, tries=1, timeout=1)


def test_a_weak_etag_is_replaced_by_the_date(server, folder):
    server.faults["/a.tgz"] = Fault(cut=HALF, etag='W/"x"')
    assert get(download(server, "/a.tgz"), folder).read_bytes() == TGZ
    assert server.gets("/a.tgz") == [None, f"bytes={HALF}-", f"bytes={2 * HALF}-"]


def test_a_part_that_is_complete_already_is_not_fetched_again(server, folder):
    """The process was killed between the last byte and the sidecar, which has the length."""
    server.faults["/a.tgz"] = Fault(cut=HALF)
    with pytest.raises(KeyboardInterrupt):
        get(download(server, "/a.tgz"), folder, wait=interrupt)
    (folder / "a.tgz.part").write_bytes(TGZ)
    assert get(download(server, "/a.tgz"), folder).read_bytes() == TGZ
    assert server.gets("/a.tgz") == [None]


def test_a_truncated_sidecar_is_ignored(server, folder):
    folder.mkdir()
    (folder / "a.tgz.part").write_bytes(b"x" * 1000000)
    for number, torn in enumerate(("{", "[]", '{"url": 3}'), 1):
        (folder / "a.tgz.part.json").write_text(torn)
        assert get(download(server, "/a.tgz"), folder).read_bytes() == TGZ
        assert len(server.requests) == number
        (folder / "a.tgz").unlink()
        (folder / "a.tgz.part").write_bytes(b"x" * 1000000)


def test_a_silent_server_is_given_up(server, folder):
    server.faults["/a.tgz"] = Fault(pause=3)
    assert get(download(server, "/a.tgz", "/b.tgz"), folder, tries=2, timeout=0.2).read_bytes() == TGZ
    assert len(server.gets("/a.tgz")) == 2


def test_a_slow_server_is_not_given_up(server, folder):
    server.faults["/a.tgz"] = Fault(pause=0.05, block=1 << 15)
    assert get(download(server, "/a.tgz"), folder, timeout=0.3).read_bytes() == TGZ
    assert len(server.requests) == 1


def test_unreachable_mirrors_are_named(server, folder):
    item = Download("a", (Mirror(("http://127.0.0.1:9/a",)), Mirror((server.url("/absent"),))))
    message = refused(item, folder, tries=2)
    assert "http://127.0.0.1:9/a (it cannot be reached, after 2 tries); " in message
    assert f"{server.url('/absent')} (status 404); fetch it by hand" in message


# --- bad answers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [403, 404, 410])
def test_missing_files_are_not_tried_twice(server, folder, status):
    server.faults["/a.tgz"] = Fault(status=status)
    assert get(download(server, "/a.tgz", "/b.tgz"), folder).read_bytes() == TGZ
    assert server.gets("/a.tgz") == [None] and get.pauses == []


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_server_with_temporary_errors_is_tried_again(server, folder, status):
    server.faults["/a.tgz"] = Fault(status=status, times=2)
    assert get(download(server, "/a.tgz"), folder).read_bytes() == TGZ
    assert get.pauses == [1.0, 2.0]
    server.faults["/a.tgz"] = Fault(status=status, headers={"Retry-After": "7"})
    get(download(server, "/a.tgz", "/b.tgz", name="b"), folder, tries=2)
    assert get.pauses == [7.0] and len(server.gets("/a.tgz")) == 3 + 2


@pytest.mark.parametrize("html_type", [True, False])
def test_a_web_page_is_not_accepted_as_a_file(server, folder, html_type):
    server.faults["/text"] = Fault(html=True, html_type=html_type)
    message = refused(download(server, "/text", name="text"), folder)
    assert "a web page instead of the file" in message and left(folder) == []
    assert get(download(server, "/text", "/c.zip", name="text"), folder).read_bytes() == ZIP
    assert len(server.gets("/text")) == (2 if html_type else 4)


def test_content_declared_as_a_web_page_is_refused(server, folder):
    server.faults["/text"] = Fault(headers={"Content-Type": "Text/HTML; charset=utf-8"})
    assert "(a web page instead of the file)" in refused(download(server, "/text", name="text"), folder)


@pytest.mark.parametrize("known", [{}, {"md5": md5(TGZ)}, {"sha256": sha256(TGZ)}])
def test_wrong_bytes_are_fetched_once_more(server, folder, known):
    wrong = bytearray(TGZ)
    wrong[len(wrong) // 2] ^= 1
    server.files["/bad.tgz"] = bytes(wrong)
    message = refused(download(server, "/bad.tgz", **known), folder)
    assert "damaged or truncated" in message and left(folder) == []
    assert server.gets("/bad.tgz") == [None, None]
    assert get(download(server, "/bad.tgz", "/a.tgz", **known), folder).read_bytes() == TGZ


def test_wrong_bytes_can_be_repaired_by_a_second_try(server, folder):
    server.faults["/text"] = Fault(wrong=True, times=1)
    assert get(download(server, "/text", name="text", md5=md5(TEXT)), folder).read_bytes() == TEXT


@pytest.mark.parametrize("known", [{"md5": "0" * 32}, {"sha256": "0" * 64}])
def test_the_right_archive_with_another_checksum_is_refused(server, folder, known):
    assert f"{list(known)[0]} is " in refused(download(server, "/a.tgz", **known), folder)
    assert left(folder) == []


def test_another_length_than_stated_is_refused(server, folder):
    message = refused(download(server, "/text", name="text", bytes=len(TEXT) + 1), folder)
    assert f"bytes is {len(TEXT)}, not {len(TEXT) + 1}" in message and left(folder) == []


def test_without_a_length_a_cut_is_found_by_the_archive_or_the_checksum(server, folder):
    """The content ends when the connection closes."""
    server.faults.update({path: Fault(length="close") for path in ("/text", "/a.tgz")})
    assert get(download(server, "/text", name="text", md5=md5(TEXT)), folder).read_bytes() == TEXT
    assert get(download(server, "/a.tgz"), folder).read_bytes() == TGZ
    server.faults.update({path: Fault(length="close", cut=HALF) for path in ("/text", "/b.tgz")})
    assert "damaged or truncated" in refused(download(server, "/b.tgz", name="b"), folder)
    assert "md5 is" in refused(download(server, "/text", name="t", md5=md5(TEXT)), folder)


def test_the_last_chunk_ends_the_file(server, folder):
    server.faults["/text"] = Fault(length="chunked")
    assert get(download(server, "/text", name="text"), folder).read_bytes() == TEXT


# --- the record --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [lambda content: content[:-1], lambda content: b"x" + content[1:]])
def test_a_file_that_has_changed_is_refused(server, folder, change):
    path = get(download(server, "/text", name="text"), folder)
    path.write_bytes(change(TEXT))
    message = refused(download(server, "/text", name="text"), folder)
    assert f"{path}: not the file of {path}.json (sha256 is" in message and "; remove it to fetch it again" in message


def test_after_deletion_the_source_must_be_unchanged(server, folder):
    item = download(server, "/text", name="text")
    get(item, folder).unlink()
    assert get(item, folder).read_bytes() == TEXT
    (folder / "text").unlink()
    server.files["/text"] = TEXT + b"one more\n"
    message = refused(item, folder)
    assert (
        f"not the file of {folder / 'text.json'} (sha256 is {sha256(TEXT + b'one more' + bytes([10]))}, "
        f"not {sha256(TEXT)}); remove it to fetch it again, or remove the record to accept it"
    ) in message
    assert left(folder) == ["text.json"]
    (folder / "text.json").unlink()
    get(item, folder)


def test_after_deletion_every_mirror_must_give_the_same_bytes(server, folder):
    item = download(server, "/a.tgz", "/c.zip", "/b.tgz")
    get(item, folder).unlink()
    server.faults["/a.tgz"] = Fault(status=404)
    assert get(item, folder).read_bytes() == TGZ  # because the zip has other bytes
    assert [entry["url"] for entry in record(folder)] == [[server.url("/b.tgz")]]
    (folder / "a.tgz").unlink()
    assert f"/c.zip ({folder / 'a.tgz.part'}: not the file of" in refused(download(server, "/c.zip"), folder)


def test_a_record_with_several_sources_accepts_the_bytes_of_each(server, folder):
    """Earlier versions wrote such records."""
    item = download(server, "/a.tgz", "/c.zip")
    get(item, folder).unlink()
    entries = record(folder)
    other = {"url": [server.url("/c.zip")], "bytes": len(ZIP), "sha256": sha256(ZIP), "content": "zip"}
    for content in (TGZ, ZIP):
        (folder / "a.tgz.json").write_text(json.dumps([*entries, other]))
        (folder / "a.tgz").write_bytes(content)
        get(item, folder)
        assert [entry["sha256"] for entry in record(folder)] == [sha256(content)]


def test_a_file_put_there_by_hand_is_verified_and_recorded(server, folder):
    folder.mkdir()
    (folder / "a.tgz").write_bytes(TGZ[:-1])
    assert "damaged or truncated" in refused(download(server, "/a.tgz"), folder)
    (folder / "a.tgz").write_bytes(tar_of({"other": b""}))
    assert f"md5 is {md5((folder / 'a.tgz').read_bytes())}, not {md5(TGZ)}" in refused(
        Download("a.tgz", (Mirror(("http://x/y",), md5=md5(ZIP)), Mirror(("http://x/z",), md5=md5(TGZ)))), folder
    )
    (folder / "a.tgz").write_bytes(TGZ)
    get(download(server, "/a.tgz", md5=md5(TGZ)), folder)
    assert record(folder)[0]["url"] == [] and server.requests == []


@pytest.mark.parametrize("by_hand", [True, False])
def test_a_file_may_come_from_a_mirror_without_a_checksum(folder, tmp_path, by_hand, capsys):
    """Archives of two years have the same name, and only one has a published checksum."""
    where = tmp_path / "hand" if by_hand else folder
    where.mkdir()
    mirrors = (Mirror(("http://new/a.tgz",)), Mirror(("http://old/a.tgz",), md5=md5(TGZ)))
    other = tar_of({"other": b""})
    (where / "a.tgz").write_bytes(other)
    assert get(Download("a.tgz", mirrors), folder, offline=where if by_hand else None) == where / "a.tgz"
    assert record(folder)[0]["sha256"] == sha256(other)
    said = capsys.readouterr().out
    assert (
        f"differs from that of http://old/a.tgz (md5 is {md5(other)}, not {md5(TGZ)})" in said
        and "http://new" not in said
    )
    # from now on only this file is valid, although the other one has a checksum
    (where / "a.tgz").write_bytes(TGZ)
    message = refused(Download("a.tgz", mirrors), folder, offline=where if by_hand else None)
    assert f"{where / 'a.tgz'}: not the file of {folder / 'a.tgz.json'}" in message


def test_a_recorded_file_must_be_one_of_the_addresses_given_now(server, folder):
    """Two tasks may have downloads of one name, and a checksum may be added later."""
    get(download(server, "/a.tgz"), folder)
    get(download(server, "/b.tgz", "/a.tgz"), folder)
    assert "which is no longer one of its addresses; remove it and" in refused(download(server, "/b.tgz"), folder)
    for kind, digest in (("md5", md5), ("sha256", sha256)):
        message = refused(download(server, "/a.tgz", **{kind: digest(ZIP)}), folder)
        assert f"{kind} is {digest(TGZ)}, not {digest(ZIP)}; remove it and" in message
    get(download(server, "/a.tgz", md5=md5(TGZ), sha256=sha256(TGZ), bytes=len(TGZ)), folder)
    assert len(server.gets("/a.tgz")) == 1 and server.gets("/b.tgz") == []


def test_a_file_with_the_checksum_of_one_mirror_gives_no_message(folder, capsys):
    folder.mkdir()
    (folder / "a.tgz").write_bytes(TGZ)
    mirrors = (
        Mirror(("http://x/a.tgz",), md5=md5(ZIP)),
        Mirror(("http://y/a",)),
        Mirror(("http://z/a",), md5=md5(TGZ)),
    )
    get(Download("a.tgz", mirrors), folder)
    assert capsys.readouterr().out == ""


def test_text_in_place_of_an_archive_is_refused(server, folder, tmp_path):
    """An example is a wrong part of an archive, which would otherwise be accepted as text."""
    server.files["/text.tgz"] = server.files["/text.tar.gz.00"] = TEXT
    for item in (
        download(server, "/text.tgz", name="x"),
        download(server, "/text.tar.gz.00", name="x"),
    ):
        assert "not the archive that its name promises" in refused(item, folder)
        (tmp_path / item.name).write_bytes(TEXT)
        assert "not the archive that its name promises" in refused(item, folder, offline=tmp_path)
    assert left(folder) == []


def test_a_malformed_record_is_refused(server, folder):
    folder.mkdir()
    for content in ("{}", "[1]", "["):
        (folder / "a.tgz.json").write_text(content)
        assert "a.tgz.json" in refused(download(server, "/a.tgz"), folder)


# --- offline -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, content", [("local", TGZ), ("a.tgz", TGZ), ("c.zip", ZIP)])
def test_offline_files_are_used_where_they_lie(server, folder, tmp_path, name, content):
    hand = tmp_path / "hand"
    hand.mkdir()
    (hand / name).write_bytes(content)
    mirrors = Mirror((server.url("/a.tgz"),), md5=md5(TGZ)), Mirror((server.url("/c.zip?x=1"),))
    item = Download("local", mirrors)
    assert get(item, folder, offline=hand) == hand / name
    assert left(folder) == ["local.json"] and left(hand) == [name] and server.requests == []
    (hand / name).write_bytes(tar_of({"other": b""}))
    assert f"{hand / name}: not the file of {folder / 'local.json'}" in refused(item, folder, offline=hand)


def test_offline_files_are_checked(server, folder, tmp_path):
    (tmp_path / "a.tgz").write_bytes(TGZ[:-1])
    assert "damaged or truncated" in refused(download(server, "/a.tgz", name="x"), folder, offline=tmp_path)
    (tmp_path / "a.tgz").write_bytes(tar_of({"other": b""}))
    item = download(server, "/a.tgz", name="x", md5=md5(TGZ))
    assert "md5 is" in refused(item, folder, offline=tmp_path)
    assert left(folder) == []


def test_offline_downloads_of_equal_names_can_be_saved_by_their_own_name(server, folder, tmp_path):
    (tmp_path / "c.zip").write_bytes(zip_of({"other": b""}))
    item = download(server, "/c.zip", name="wmt18", md5=md5(ZIP))
    assert "; if that is another file of the same name, save the right one as wmt18" in refused(
        item, folder, offline=tmp_path
    )
    (tmp_path / "wmt18").write_bytes(ZIP)
    assert get(item, folder, offline=tmp_path) == tmp_path / "wmt18"


def test_offline_parts_are_joined(server, folder, tmp_path):
    item = Download("x.tgz", (Mirror((server.url("/x.00"), server.url("/x.01"))),))
    (tmp_path / "x.00").write_bytes(TGZ[:HALF])
    message = refused(item, folder, offline=tmp_path)
    assert f"{tmp_path} has no file x.tgz or x.00 + x.01; fetch {server.url('/x.00')} + " in message
    (tmp_path / "x.01").write_bytes(TGZ[HALF:-1])
    assert "damaged or truncated" in refused(item, folder, offline=tmp_path) and left(folder) == []
    (tmp_path / "x.01").write_bytes(TGZ[HALF:])
    assert get(item, folder, offline=tmp_path) == folder / "x.tgz"
    assert (folder / "x.tgz").read_bytes() == TGZ and left(folder) == ["x.tgz", "x.tgz.json"]
    assert server.requests == []


# --- processes and the disk --------------------------------------------------------------------------------------


def start(item, folder):
    code = (
        "from pathlib import Path; from fairseq_rela.corpora.download import fetch; "
        f"from fairseq_rela.corpora.spec import Download, Mirror; fetch({item!r}, Path({str(folder)!r}))"
    )
    # the package's __init__ imports fairseq, which takes seconds
    light = (
        "import sys, types; package = types.ModuleType('fairseq_rela'); "
        f"package.__path__ = [{str(ROOT / 'fairseq_rela')!r}]; sys.modules['fairseq_rela'] = package; "
    )
    return subprocess.Popen([sys.executable, "-c", light + code], stderr=subprocess.PIPE, encoding="utf-8")


def wait_for(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_killed_download_is_resumed_and_a_second_process_is_refused(server, folder):
    server.faults["/a.tgz"] = Fault(pause=0.4)
    item = download(server, "/a.tgz")
    process = start(item, folder)
    part = folder / "a.tgz.part"
    wait_for(lambda: part.exists() and part.stat().st_size > 0)
    assert "a.tgz is being fetched by another process, " in refused(item, folder)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    size = part.stat().st_size
    assert not (folder / "a.tgz").exists() and TGZ.startswith(part.read_bytes()) and 0 < size < len(TGZ)
    server.faults.clear()
    assert get(item, folder).read_bytes() == TGZ
    assert server.gets("/a.tgz") == [None, f"bytes={size}-"]
    assert left(folder) == ["a.tgz", "a.tgz.json"]


def test_a_lock_that_was_deleted_meanwhile_is_not_valid(server, folder, monkeypatch):
    real = fcntl.flock

    def flock(file, how):
        (folder / ".a.tgz.lock").unlink()
        real(file, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    assert "by another process" in refused(download(server, "/a.tgz"), folder)


def test_different_files_are_fetched_in_parallel_threads(server, folder):
    threads = [
        threading.Thread(target=fetch, args=(download(server, path, name=path[1:]), folder)) for path in server.files
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((folder / path[1:]).read_bytes() == content for path, content in server.files.items())


def test_a_full_disk_keeps_the_part(server, folder, monkeypatch):
    real = transfer._blocks

    def two_blocks(response):
        yield from itertools.islice(real(response), 2)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(transfer, "_blocks", two_blocks)
    message = refused(download(server, "/a.tgz", "/b.tgz"), folder)
    assert "no space left on the disk" in message and left(folder) == ["a.tgz.part", "a.tgz.part.json"]
    monkeypatch.setattr(transfer, "_blocks", real)
    get(download(server, "/a.tgz"), folder)
    assert server.gets("/a.tgz") == [None, f"bytes={HALF}-"] and server.gets("/b.tgz") == []


# --- all of them -------------------------------------------------------------------------------------------------


def test_sizes_of_downloads_are_found_beforehand(server, folder, tmp_path):
    server.faults["/x"] = Fault(length="chunked")
    server.files["/x"] = TEXT
    items = {
        "told": download(server, "/a.tgz", name="told"),
        "stated": download(server, "/absent", name="stated", bytes=77),
        "unknown": download(server, "/x", name="unknown"),
        "mirror": download(server, "/absent", "/c.zip", name="mirror"),
        "parts": Download("parts", (Mirror((server.url("/a.tgz"), server.url("/text"))),)),
        "nobody": Download("nobody", (Mirror(("http://127.0.0.1:9/",)),)),
        "here": download(server, "/a.tgz", name="here"),
    }
    get(items["here"], folder)
    expected = dict(told=len(TGZ), stated=77, unknown=None, mirror=len(ZIP), parts=len(TGZ) + len(TEXT))
    assert sizes(items, folder) == dict(expected, nobody=None, here=0)
    server.faults["/a.tgz"] = Fault(cut=HALF)
    with pytest.raises(KeyboardInterrupt):
        get(items["told"], folder, wait=interrupt)
    assert sizes(items, folder)["told"] == len(TGZ) - HALF
    count = len(server.requests)
    (tmp_path / "text").write_bytes(TEXT)
    (tmp_path / "a.tgz").write_bytes(TGZ)
    offline = sizes(items, folder, tmp_path)
    assert offline == dict(
        told=0, stated=None, unknown=None, mirror=None, parts=len(TGZ) + len(TEXT), nobody=None, here=0
    )
    assert len(server.requests) == count


def test_fetch_all_gives_every_file(server, folder, capsys):
    items = {name: download(server, path, name=name) for name, path in (("a", "/a.tgz"), ("t", "/text"))}
    get(items["a"], folder)
    server.faults["/text"] = Fault(length="chunked")
    assert fetch_all(items, folder) == {"a": folder / "a", "t": folder / "t"}
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["a: already here", "t: size unknown"]
    assert lines[2] == "to fetch: 0.00B and 1 of unknown size"
    assert lines[3:] == [
        f"a: {len(TGZ) / 1e3:.0f}kB, sha256 {sha256(TGZ)}, from {server.url('/a.tgz')}",
        f"t: 360kB, sha256 {sha256(TEXT)}, from {server.url('/text')}",
    ]


def test_fetch_all_refuses_what_does_not_fit_before_the_first_byte(server, folder, monkeypatch):
    usage = shutil.disk_usage("/")._replace(free=sources._MARGIN + len(TGZ) + len(TEXT) - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    items = {name: download(server, path, name=name) for name, path in (("a", "/a.tgz"), ("t", "/text"))}
    with pytest.raises(InputError, match=r"0\.10 GB are needed and 0\.10 GB are free; make room"):
        fetch_all(items, folder)
    assert server.gets("/a.tgz") == [] and not folder.exists()
    usage = usage._replace(free=usage.free + 1)
    fetch_all(items, folder)


# --- the specification -------------------------------------------------------------------------------------------


def test_every_form_of_a_download_is_parsed():
    spec = {
        "a.tgz": {
            "urls": [
                "http://x.org/a.tgz",
                ["https://x.org/a.00", "https://x.org/a.01"],
                {"url": "https://y.org/a", "md5": "AB" * 16, "sha256": "c" * 64, "bytes": 5},
                {"url": ["https://z.org/0", "https://z.org/1"]},
            ]
        }
    }
    assert parse_downloads(spec) == {
        "a.tgz": Download(
            "a.tgz",
            (
                Mirror(("http://x.org/a.tgz",)),
                Mirror(("https://x.org/a.00", "https://x.org/a.01")),
                Mirror(("https://y.org/a",), "ab" * 16, "c" * 64, 5),
                Mirror(("https://z.org/0", "https://z.org/1")),
            ),
        )
    }


URL = "http://x.org/a"


@pytest.mark.parametrize(
    "spec, message",
    [
        ([], "give a mapping"),
        ({"a": [URL]}, "downloads, a: give `urls:`"),
        ({"a": {"urls": [URL], "md5": "x"}}, "downloads, a: give `urls:`"),
        ({"a": {"urls": []}}, "downloads, a: urls must be a list"),
        ({"a": {"urls": URL}}, "downloads, a: urls must be a list"),
        ({"a": {"urls": [URL, 3]}}, "downloads, a, mirror 2: 3 is neither"),
        ({"a": {"urls": [[]]}}, "mirror 1: .* is neither"),
        ({"a": {"urls": [[URL, 3]]}}, "3 is not a URL"),
        ({"a": {"urls": ["ftp://x.org/a"]}}, "not a URL of http or https"),
        ({"a": {"urls": ["file:///etc/passwd"]}}, "not a URL of http or https"),
        ({"a": {"urls": ["http://"]}}, "not a URL of http or https"),
        ({"a": {"urls": ["http://[x/a"]}}, "not a URL of http or https"),
        ({"a": {"urls": ["http://x/a\nb"]}}, "not a URL of http or https"),
        ({"a": {"urls": [{"md5": "0" * 32}]}}, "no url"),
        ({"a": {"urls": [{"url": URL, "sha1": "0"}]}}, "unknown sha1"),
        ({"a": {"urls": [{"url": URL, "md5": "0" * 31}]}}, "md5 '0+' is not 32 hexadecimal digits"),
        ({"a": {"urls": [{"url": URL, "md5": 10**31}]}}, "in quotes"),  # because YAML reads digits as a number
        ({"a": {"urls": [{"url": URL, "sha256": "g" * 64}]}}, "sha256 'g+' is not 64"),
        ({"a": {"urls": [{"url": URL, "bytes": True}]}}, "bytes True is not a whole number"),
        ({"a": {"urls": [{"url": URL, "bytes": 0}]}}, "bytes 0"),
        ({"a": {"urls": [{"url": URL, "bytes": "5"}]}}, "bytes '5'"),
        ({3: {"urls": [URL]}}, "the file name 3 is not text"),
        *(
            ({name: {"urls": [URL]}}, "not a name for a download")
            for name in (
                "",
                ".a",
                "../a",
                "a/b",
                "/a",
                "a\nb",
                "a b",
                "a\0",
                "a.json",
                "a.part",
                "x" * 201,
                "-a",
                "a\n",
            )
        ),
    ],
)
def test_bad_specifications_are_named(spec, message):
    with pytest.raises(InputError, match=message) as error:
        parse_downloads(spec)
    assert "\n" not in str(error.value)


def test_removing_a_part_also_removes_its_partial_records(tmp_path):
    path, gone = tmp_path / "a[1].tgz", 2**22 + 1  # larger than any process number of Linux
    left = [tmp_path / name for name in ("a[1].tgz.part", "a[1].tgz.part.json", f".a[1].tgz.part.json.{gone}.partial")]
    others = [tmp_path / name for name in ("a[1].tgz", f".a1.tgz.part.json.{gone}.partial", "b.tgz.part")]
    for file in (*left, *others):
        file.write_text("x")
    transfer.Part(path, 0, "http://x/").remove()
    assert sorted(tmp_path.iterdir()) == sorted(others)
