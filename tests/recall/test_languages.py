# ruff: noqa: RUF001 - letters and marks of other scripts
"""Recall in languages that put no spaces between words: their words are searched as pairs of characters."""

from __future__ import annotations

import pytest
from langchain_core.messages import HumanMessage

from langchain_workingmem import HybridWeights, Memory, RecallOptions
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.types import Make

NOTES = {
    "zh": ["周六要去买三斤排骨", "爸爸的降压药还剩五片", "小宇的家长会改到周四晚上", "车险九月十二号到期"],
    "ja": ["土曜日に豚肉を買う", "父の薬はあと五錠", "豆太は雷が苦手で押し入れに隠れる", "車の保険は九月に切れる"],
    "ko": [
        "토요일에 갈비를 산다",
        "아버지 약이 다섯 알 남았다",
        "강아지를 데리고 병원에 갔다",
        "자동차 보험은 구월에 끝난다",
    ],
    "th": ["วันเสาร์ต้องไปซื้อหมู", "ยาของพ่อเหลือห้าเม็ด", "หมาสีดำกลัวเสียงฟ้าร้อง", "ประกันรถหมดเดือนกันยายน"],
}


WORDS = RecallOptions(weights=HybridWeights(dense=0, neighbours=0))


class CharacterEmbeddings(WordEmbeddings):
    """A text is the sum of its characters' directions."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return super().embed_documents([" ".join(text) for text in texts])


@pytest.fixture
def worded(make_memory: Make) -> Memory:
    """A memory that ranks by words alone; vectors only say how far they are trusted."""
    return make_memory(embeddings=CharacterEmbeddings(), recall=WORDS)


@pytest.mark.parametrize(
    ("language", "question", "found"),
    [
        ("zh", "家长会是什么时候？", 2),
        ("ja", "豆太は雷が怖いですか", 2),
        ("ko", "강아지가 어디 갔어?", 2),
        ("th", "หมาสีอะไร", 2),
    ],
)
def test_words_are_found_inside_a_text(worded: Memory, language: str, question: str, found: int) -> None:
    said = [HumanMessage(text, id=str(at)) for at, text in enumerate(NOTES[language])]
    worded.history.append([*said, HumanMessage("We bought a red bicycle", id="bike")], thread_id="t", user_id="u")
    hits = worded.recall.search(question, user_id="u").hits
    assert hits[0].message.id == str(found)
    assert hits[0].message.content == NOTES[language][found]
    assert worded.recall.search("bicycle", user_id="u").hits[0].message.id == "bike"


@pytest.mark.parametrize(
    ("said", "question"),
    [
        ("Unser Straßenfest ist im Juni.", "Wann ist das STRASSENFEST?"),
        ("L'œuvre de Chloé est au musée.", "Où est l'oeuvre de Chloe ?"),
        ("Kedim Işık çok yaramaz.", "IŞIK KİM?"),
        ("Η ΓΑΤΑ ΜΟΥ ΛΕΓΕΤΑΙ ΝΕΦΕΛΗ.", "Πού είναι η γάτα;"),
        ("मेरा ऑर्डर नंबर ४७११ है।", "4711?"),
        ("ﾎﾟﾁは犬です。", "ポチは？"),
        ("I said “yes”—Kowalczyk’s aunt agreed.", "Kowalczyk?"),
        ("वह मोती।", "मोती?"),
    ],
)
def test_accents_capitals_and_digits_of_other_scripts_match(worded: Memory, said: str, question: str) -> None:
    others = ["Der Zug war zu spät.", "Le train est en retard.", "Tren yine gecikti."]
    others += ["Поезд опять опоздал.", "0815", "火车又晚点了。"]
    worded.history.append([*others, said, *others], thread_id="t", user_id="maya")
    assert worded.recall.search(question, user_id="maya").hits[0].message.text == said
