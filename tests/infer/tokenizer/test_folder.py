from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors

from deepdraft.errors import UsageError
from deepdraft.infer.tokenizer.folder import folder_tokenizer
from deepdraft.infer.tokenizer.tokenizer import Tokenizer

TEXTS = ["Hello  world\n\n", "<s>a</s> b</s>", "日本語 😀", "", "<|im_start|> x"]


def write(
    folder: Path, stated: dict[str, Any] | None = None, *, post_bos: bool = False, files: dict[str, str] | None = None
) -> Path:
    """A folder as transformers saves it: byte-level, two special tokens of which only <s> is marked so."""
    alphabet = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "</s>"]
    backend = tokenizers.Tokenizer(
        models.BPE(vocab={letter: rank for rank, letter in enumerate(alphabet)}, merges=[])
    )
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken("<s>", normalized=False)])
    if post_bos:
        backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 257)])
    folder.mkdir(exist_ok=True)
    backend.save(str(folder / "tokenizer.json"))
    if stated is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(stated))
    for name, text in (files or {}).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def opened(folder: Path) -> Tokenizer:
    return folder_tokenizer(folder, (7,))


STATED = {"bos_token": "<s>", "eos_token": {"__type": "AddedToken", "content": "</s>", "special": True}}


def test_special_tokens_by_the_config(tmp_path: Path) -> None:
    tokenizer = opened(write(tmp_path, STATED))
    assert (tokenizer.bos_token_id, tokenizer.eos_token_ids) == (257, (7, 256))
    assert tokenizer.decode(tokenizer.encode("<s>a</s>", add_special=False), skip_special=True) == "a"


@pytest.mark.parametrize("post_bos", [False, True])
def test_ids_and_texts_are_transformers_own(post_bos: bool, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    folder = write(tmp_path, {**STATED, "tokenizer_class": "PreTrainedTokenizerFast"}, post_bos=post_bos)
    expected = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer = opened(folder)
    for text in TEXTS:
        for add_special in (False, True):
            token_ids = tokenizer.encode(text, add_special=add_special)
            assert token_ids == expected.encode(text, add_special_tokens=add_special)
            for skip_special in (False, True):
                text_again = expected.decode(
                    token_ids, skip_special_tokens=skip_special, clean_up_tokenization_spaces=False
                )
                assert tokenizer.decode(token_ids, skip_special=skip_special) == text_again


@pytest.mark.parametrize("post_bos", [False, True])
@pytest.mark.parametrize("adds_bos", [False, True])
def test_add_bos_token_counts_before_the_post_processor(adds_bos: bool, post_bos: bool, tmp_path: Path) -> None:
    tokenizer = opened(write(tmp_path, {**STATED, "add_bos_token": adds_bos}, post_bos=post_bos))
    assert (tokenizer.encode("a", add_special=True)[0] == 257) == adds_bos


@pytest.mark.parametrize("name", ["additional_special_tokens", "extra_special_tokens"])
def test_special_tokens_without_a_role(name: str, tmp_path: Path) -> None:
    tokenizer = opened(write(tmp_path, {name: ["</s>", "<nowhere>"]}))
    assert tokenizer.is_special(256)
    assert tokenizer.vocab_size == 258


def test_a_special_token_keeps_how_it_takes_spaces(tmp_path: Path) -> None:
    folder = write(tmp_path, STATED)
    backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.add_special_tokens([AddedToken("<s>", normalized=False, rstrip=True)])
    backend.save(str(folder / "tokenizer.json"))
    assert opened(folder).encode("<s>   a", add_special=False) == [
        257,
        *opened(folder).encode("a", add_special=False),
    ]


def test_a_special_token_without_an_id_is_not_added(tmp_path: Path) -> None:
    tokenizer = opened(write(tmp_path, {"eos_token": "<nowhere>"}))
    assert tokenizer.eos_token_ids == (7,)
    assert tokenizer.vocab_size == 258


def rendered(folder: Path, **values: Any) -> str:
    return opened(folder).chat([{"role": "user", "content": "hi"}], add_generation_prompt=True, **values)


def test_template_in_the_config(tmp_path: Path) -> None:
    assert rendered(write(tmp_path, {**STATED, "chat_template": "{{ bos_token }}{{ eos_token }}x"})) == "<s></s>x"


def test_templates_by_name_in_the_config(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "with tools"}]
    folder = write(tmp_path, {**STATED, "chat_template": named})
    assert rendered(folder) == "plain"
    assert rendered(folder, tools=[{"type": "function"}]) == "with tools"


def test_a_file_of_its_own_comes_first(tmp_path: Path) -> None:
    files = {
        "chat_template.jinja": "file: {{ messages[0].content }} é",
        "additional_chat_templates/tool_use.jinja": "t",
    }
    folder = write(tmp_path, {**STATED, "chat_template": "config"}, files=files)
    assert rendered(folder) == "file: hi é"
    assert rendered(folder, tools=[{"type": "function"}]) == "t"


def test_without_a_config_there_is_still_a_vocabulary(tmp_path: Path) -> None:
    tokenizer = opened(write(tmp_path))
    assert (tokenizer.bos_token_id, tokenizer.eos_token_ids, tokenizer.has_chat_template) == (None, (7,), False)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("tokenizer.json", None, "tokenizer.json is missing"),
        ("tokenizer.json", "{", "tokenizer.json is not a tokenizer"),
        ("tokenizer.json", "{}", "tokenizer.json is not a tokenizer"),
        ("tokenizer_config.json", "{", "tokenizer_config.json is not JSON"),
        ("tokenizer_config.json", "[]", "not a JSON object"),
    ],
)
def test_broken_files_are_said_in_one_line(name: str, content: str | None, words: str, tmp_path: Path) -> None:
    folder = write(tmp_path, STATED)
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content)
    with pytest.raises(UsageError, match=words) as refused:
        opened(folder)
    assert "\n" not in refused.value.message
