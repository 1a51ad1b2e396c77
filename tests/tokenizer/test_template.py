from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidemill_common.errors import Reason, TidemillError
from tidemill_tokenizer.template import Template

HELLO = [{"role": "user", "content": "Hello <é>"}]


def test_a_template_has_what_transformers_gives_it() -> None:
    source = (
        "{{ bos_token }}{% generation %}{{ messages[0].content }}{% endgeneration %}{{ tools | tojson }}"
        "{% for x in [1, 2] %}{% if loop.first %}{% continue %}{% endif %}{{ x }}{% endfor %}{{ strftime_now('%Y') }}"
    )
    assert Template(source, bos_token="<s>").render(HELLO, [{"é": '"'}], open_turn=True) == '<s>Hello <é>[{"é": "\\""}]22024'


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('no') }}",
        "{{ messages[3].role }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ 1 + 'a' }}",
        "{{ messages[0].content.x.y }}",
    ],
)
def test_a_template_that_refuses_or_breaks_out_is_an_invalid_request(source: str) -> None:
    with pytest.raises(TidemillError) as refused:
        Template(source).render(HELLO, [], open_turn=True)
    assert refused.value.reason == Reason.INVALID_REQUEST


def test_a_template_that_does_not_compile_is_a_configuration_error() -> None:
    with pytest.raises(TidemillError) as refused:
        Template("{% if %}")
    assert refused.value.reason == Reason.CONFIG


def test_the_template_is_read_from_its_file_or_from_the_configuration(tmp_path: Path) -> None:
    assert Template.load(tmp_path) is None
    config = {
        "bos_token": {"content": "<s>"},
        "chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}],
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    listed = Template.load(tmp_path)
    assert listed is not None
    assert listed.source == "d"
    (tmp_path / "chat_template.jinja").write_text("f{{ bos_token }}")
    filed = Template.load(tmp_path)
    assert filed is not None
    assert filed.render(HELLO, [], open_turn=False) == "f<s>"


def test_a_malformed_configuration_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(TidemillError) as refused:
        Template.load(tmp_path)
    assert refused.value.reason == Reason.CONFIG
