"""Markdown on pages: what it becomes, that nothing else becomes markup, and what it costs."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_workingmem.studio.markdown import LONGEST, rendered
from langchain_workingmem.studio.site import marked

OWN = re.compile(
    r'</?(?:b|em|code|pre|blockquote|span|p)>|<p class="md(?: h[123]| item l[0-3])?">|&(?:amp|lt|gt|quot|#x27);'
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# About", '<p class="md h1">About</p>'),
        ("- **dog**: *Nougat*", '<p class="md item l0"><span>•</span> <b>dog</b>: <em>Nougat</em></p>'),
        ("one\ntwo\n\nthree", '<p class="md">one\ntwo</p>\n<p class="md">three</p>'),
        ("```py\n**a** < b\n```", "<pre>**a** &lt; b</pre>"),
        ("```\n<not closed", "<pre>&lt;not closed</pre>"),
        ("`a*b*`", '<p class="md"><code>a*b*</code></p>'),
        ("3 * 4 * 5, #tag, -1", '<p class="md">3 * 4 * 5, #tag, -1</p>'),
        ("[a](javascript:alert(1))", '<p class="md">[a](javascript:alert(1))</p>'),
        ("<b onclick=x>", '<p class="md">&lt;b onclick=x&gt;</p>'),
    ],
)
def test_what_a_text_becomes(text: str, expected: str) -> None:
    assert str(rendered(text)) == expected


@given(st.text(alphabet="<>&\"'*`#->. \n\tab1", max_size=200))
def test_nothing_else_becomes_markup(text: str) -> None:
    assert not set("<>&\"'") & set(OWN.sub("", str(rendered(text))))


@given(st.text(alphabet="*`#-> \nab", max_size=200))
def test_no_word_is_lost(text: str) -> None:
    fences = re.sub(r"^[ \t]*```.*$", "", text, flags=re.MULTILINE)
    shown = OWN.sub("", str(rendered(text)))
    assert re.findall("[ab]", shown) == re.findall("[ab]", fences)


def test_a_long_text_and_json_are_shown_as_they_are() -> None:
    long = "*a*" * LONGEST
    assert str(marked(long)).startswith('<pre class="document">*a**a*')
    assert str(marked('{"a": "<b>"}')) == '<pre class="document">{\n  &quot;a&quot;: &quot;&lt;b&gt;&quot;\n}</pre>'
