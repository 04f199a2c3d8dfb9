"""What the user gave in confidence appears nowhere: not in the file, the table, the progress or an error."""

from __future__ import annotations

import json

import pytest

from deepdraft.simulate.spec import Surface

KEY = "wk-7f3a9c2e51d84b06"
ADMIN = "adm-0d2f6b8e4a1c9375"
HEADER = "tok-5b1e8d3c7a9f2046"
FIELD = "pw-91c4e7a2d8b6f053"
FLAGS = (
    *("--api-key", KEY),
    *("--admin-key", ADMIN),
    *("--header", f"X-Proxy-Token: {HEADER}"),
    *("--extra-body", json.dumps({"upstream": {"api_key": FIELD}})),
)
ALL = (KEY, ADMIN, HEADER, FIELD)


def test_of_a_sweep_that_goes_well(deepdraft, simulated, brief, tmp_path) -> None:
    server = simulated(dialect="sglang", surface=Surface(api_key=KEY, admin_key=ADMIN))
    ran = deepdraft("sweep", server.url, "--context-len", "200", *brief, *FLAGS, "--out", "out.jsonl")
    assert ran.code == 0, ran.err
    content = (tmp_path / "out.jsonl").read_text()
    shown = deepdraft("show", "out.jsonl", "--json")
    served = deepdraft("servers", server.url, *FLAGS, "--json")
    assert served.code == 0, served.err
    written = content + ran.out + ran.err + shown.out + served.out + served.err
    assert [secret for secret in ALL if secret in written] == []
    header = json.loads(content.splitlines()[0])
    assert header["command_line"][:4] == ["deepdraft", "sweep", server.url, "--context-len"]
    assert header["command_line"][header["command_line"].index("--api-key") + 1] == "<redacted>"
    assert header["spec"]["extra_body"] == {"upstream": {"api_key": "<redacted>"}}
    # They were used all the same.
    assert "flush" in content
    assert '"is_done":false' not in content

    # A resumed sweep must be given them again, and does not compare them.
    (tmp_path / "out.jsonl").write_text("".join(content.splitlines(keepends=True)[:-1]))
    ran = deepdraft("sweep", "--resume", "out.jsonl", *FLAGS)
    assert ran.code == 0, ran.err
    assert [secret for secret in ALL if secret in (tmp_path / "out.jsonl").read_text() + ran.out + ran.err] == []


@pytest.mark.parametrize("command", ["sweep", "servers"])
def test_of_a_server_that_repeats_them(called, loopback, command, tmp_path) -> None:
    def answer(request):
        words = f"Invalid key {request.headers['authorization']}, token {request.headers['x-proxy-token']}"
        return 401, "application/json", json.dumps({"error": {"message": words}}).encode()

    flags = ("--context-len", "200", "--out", "out.jsonl") if command == "sweep" else ()
    ran = called(command, loopback(answer), *FLAGS, *flags)
    assert ran.code == 3
    assert "Invalid key <redacted>" in ran.said[0]
    assert [secret for secret in ALL if secret in ran.out + ran.err] == []


def test_of_flags_that_are_wrong(called) -> None:
    for words in (
        ("--header", f"X-Proxy-Token {HEADER}"),
        (f"--api-kye={KEY}",),
        ("--api-kye", KEY),
        ("--header", f"Bad Name: {HEADER}"),
    ):
        ran = called("sweep", "http://127.0.0.1:1", "--context-len", "1k", *words)
        assert ran.code == 2
        assert [secret for secret in ALL if secret in ran.out + ran.err] == []
    ran = called("sweep", f"http://user:{KEY}@127.0.0.1:1", "--context-len", "1k")
    assert ran.code == 2
    assert KEY not in ran.err
