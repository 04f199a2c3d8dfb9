"""No secret reaches a results file."""

from deepdraft.records.redact import REDACTED, redacted, redacted_command_line


def test_keys_headers_and_passwords_leave_the_command_line() -> None:
    line = redacted_command_line(
        [
            "deepdraft",
            "sweep",
            "https://user:pa55@host:8000/v1",
            "--api-key",
            "sk-secret",
            "--admin-key=adm1n",
            "--header",
            "X-Token: abc",
            "--header=Cookie: session=1",
            "--context-len",
            "1k",
        ]
    )
    text = " ".join(line)
    for secret in ("pa55", "sk-secret", "adm1n", "abc", "session=1"):
        assert secret not in text
    assert "host:8000/v1" in text and "X-Token" in text and "1k" in text


def test_a_flag_that_takes_a_secret_hides_only_its_value() -> None:
    assert redacted_command_line(["--api-key", "--api-key", "1k"]) == ("--api-key", REDACTED, "1k")


def test_server_settings_lose_their_secrets_at_any_depth() -> None:
    settings = {
        "api_key": "sk-1234567890",
        "admin_api_key": None,
        "nested": [{"hf_token": "hf_abcdefghijk", "tp_size": 8}],
        "launch_command": "python -m sglang --api-key-like sk-abcdefgh12345",
        "max_total_num_tokens": 218484,
        "tokenizer_path": "/models/kimi",
    }
    clean = redacted(settings)
    assert clean["api_key"] == REDACTED
    assert clean["admin_api_key"] is None
    assert clean["nested"][0] == {"hf_token": REDACTED, "tp_size": 8}
    assert "sk-abcdefgh12345" not in clean["launch_command"]
    assert clean["max_total_num_tokens"] == 218484
    assert clean["tokenizer_path"] == "/models/kimi"
