from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from deepdraft.report.markup import Markup, element, escaped, foreign, joined, visible


class Seen(HTMLParser):
    """What a parser makes of it: tags with their attributes, and the text."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.text = [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


@given(st.text())
def test_no_text_becomes_a_tag_or_an_attribute(text):
    seen = Seen(element("p", text, title=text))
    assert seen.tags == [("p", {"title": visible(text)})]
    assert seen.text == visible(text)


@given(st.text())
def test_no_unseen_character_is_left(text):
    shown = visible(text)
    assert len(shown) == len(text)
    assert not set(shown) & {chr(code) for code in (*range(9), *range(11, 32), 0x7F, 0x202E, 0x2066, 0xFEFF, 0xD800)}


def test_markup_is_not_escaped_twice():
    inner = element("b", "a < b")
    assert joined(inner, " & c") == "<b>a &lt; b</b> &amp; c"
    assert escaped(Markup("<i></i>")) == "<i></i>"


def test_attributes_are_named_as_html_names_them():
    assert element("td", "1", class_="x", data_value=0.5, title=None) == '<td class="x" data-value="0.5">1</td>'
    assert element("meta", charset="utf-8") == '<meta charset="utf-8">'


def test_text_of_a_file_has_a_writing_direction_of_its_own():
    assert foreign("model\u202egnp.exe") == "<bdi>model\ufffdgnp.exe</bdi>"
