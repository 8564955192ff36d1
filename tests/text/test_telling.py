# ruff: noqa: RUF001 - marks of Chinese and Japanese
"""Words that tell something, orders, questions, and messages that go on with the turn before."""

from __future__ import annotations

import pytest

from langchain_workingmem._text.telling import (
    as_searched,
    asks_about_you,
    count_shared,
    goes_on,
    is_order,
    is_question,
    is_thanks,
    telling_words,
    without_times,
)


@pytest.mark.parametrize(
    "text",
    [
        "Hi, how are you doing today?",
        "thanks, good night!",
        "Na, wie geht's dir heute?",
        "merci beaucoup, à bientôt",
        "muchas gracias, hasta luego",
        "спасибо, до завтра",
        "谢谢！",
        "ありがとうございました",
        "고마워",
        "ㅋㅋㅋ",
        "ขอบคุณครับ",
        "grazie, a domani",
        "obrigado, até logo",
        "dankjewel, tot morgen",
        "dzięki, dobranoc",
        "",
        "?!",
        "___",
    ],
)
def test_small_talk_tells_nothing(text: str) -> None:
    assert telling_words(text) == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("And how is Pretzel doing today?", ["pretzel"]),
        ("What is the name of my dog?", ["name", "dog"]),
        ("Was nehme ich gegen Migräne?", ["nehme", "migräne"]),
        ("Quel médicament pour mon chat ?", ["médicament", "chat"]),
        ("order 4711", ["order", "4711"]),
        ("die war gift", ["gift"]),  # German: "die" and "war" are plain there
        ("a war and a gift", ["war", "gift"]),  # English
        ("我的甲状腺结节有多大？", ["甲状腺结节"]),
        ("dog Dog DOG", ["dog"]),
        ("หมาของฉันชื่ออะไร", ["หมา", "ชื่อ"]),
        ("मेरे कुत्ते का नाम", ["मेरे", "कुत्ते", "का", "नाम"]),
        ("Come si chiama il mio gatto?", ["gatto"]),
    ],
)
def test_what_is_left_tells_something(text: str, words: list[str]) -> None:
    assert [*telling_words(text)] == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("my dog’s name – Nougat", ["my", "dog", "s", "name", "nougat"]),
        ("我的狗叫豆豆。", ["我的", "的狗", "狗叫", "叫豆", "豆豆"]),
        ("狗，Nougat和cat", ["狗", "nougat", "和", "cat"]),
        ("ピーナツが好き", ["ピー", "ーナ", "ナツ", "ツが", "が好", "好き"]),
        ("강아지 이름", ["강아", "아지", "이름"]),
        ("หมา", ["หม", "มา"]),
        ("3月15日", ["3", "月", "15", "日"]),
    ],
)
def test_where_no_spaces_are_two_characters_are_a_word(text: str, words: list[str]) -> None:
    assert as_searched(text).split() == words


@pytest.mark.parametrize(
    "text",
    [
        "Sort this list: plum, apple",
        "please translate into Spanish: the cat sleeps",
        "Schreib eine Mail, dass ich krank bin",
        "Traduis en anglais : le train est parti",
        "ordena estas palabras: casa, perro",
        "напиши письмо начальнику",
        "翻译成英文：火车晚点了",
        "英語に訳してください",
        "이 문장을 번역해줘",
        "敬語に直して：「早く返して」",
        "맞춤법 고쳐줘: 이사짐을 옴기다",
        "traduci in tedesco: il treno è in ritardo",
        "What's 23 * 48?",
        "19 % von 1260",
        "12-5",
        "1000 / 8",
        "What is 12x8?",
    ],
)
def test_orders(text: str) -> None:
    assert is_order(text)


@pytest.mark.parametrize(
    "text",
    [
        "Can you list what I said about the car?",
        "What did I write in March?",
        "I write novels",
        "",
        *("0170-5551239", "030/901820", "ORD-2024-0815", "2026-03-14", "What is c01x00t47?"),
        *("How large is my poster, 30x40?", "Which team did we beat 3-2?"),
    ],
)
def test_no_orders(text: str) -> None:
    assert not is_order(text)


@pytest.mark.parametrize(
    "text",
    ["And who is his doctor?", "why?", "the second one?", "which floor?", "Und bei wem?", "¿por qué?", "为什么呀？"],
)
def test_what_goes_on_with_the_turn_before(text: str) -> None:
    assert goes_on(text)


@pytest.mark.parametrize(
    "text", ["Who is my mother's heart doctor?", "thanks!", "", "And the budget of the Lisbon trip in October?", "ok"]
)
def test_what_stands_alone(text: str) -> None:
    assert not goes_on(text)


@pytest.mark.parametrize("text", ["Where do I live", "你好吗？", "元気ですか", "¿Qué hora es?", "Wo wohne ich"])
def test_questions(text: str) -> None:
    assert is_question(text)


def test_statements_are_no_questions() -> None:
    assert not is_question("I live in Cologne.")


def test_words_are_shared_whatever_their_endings() -> None:
    assert count_shared(["painkillers", "allergy"], "No painkiller: I have allergies.") == 2
    assert count_shared(["cat"], "a category of its own") == 0
    assert count_shared(["甲状腺结节"], "甲状腺有个结节") == pytest.approx(0.75)


@pytest.mark.parametrize(
    "text",
    ["Thanks, the hotel was lovely", "Vielen Dank für den Tipp", "Спасибо!", "ありがとう、助かった", "감사합니다"],
)
def test_thanks(text: str) -> None:
    assert is_thanks(text)
    assert not is_thanks(f"{text} What was its name?")
    assert not is_thanks(text[-3:])


@pytest.mark.parametrize(
    "text",
    [
        "How was your day?",
        "What book are you reading?",
        "Are you a robot or a person?",
        "How was your weekend? Mine was quiet, a bit of telly and a long bath.",
        "My train is late again, can you believe it?",
        "How many minutes are 7 hours?",
        "Was machst du so, wenn niemand mit dir redet?",
        "Tu es un robot ou une vraie personne ?",
        "El vecino está otra vez con el taladro, ¿te lo puedes creer?",
        "Чем ты занимаешься?",
        "你周末过得好吗？",
        "あなたはロボットですか、それとも人間？",
        "너는 로봇이야 사람이야?",
    ],
)
def test_questions_about_the_one_who_is_asked(text: str) -> None:
    assert asks_about_you(text)


@pytest.mark.parametrize(
    "text",
    [
        "What did you suggest for my knee?",
        "Did you book the hut?",
        "Which of the two hotels have you found?",
        "Hast du Clara die Mail geschickt?",
        "Quel hôtel as-tu réservé ?",
        "Ты забронировал отель в Праге?",
        "你订了哪个小屋？",
        "Which place did you recommend?",
        "Do you remember Maisie's birthday?",
        "Can you find Pretzel's vet?",
        "What's my sister's name, do you know?",
        "Ich muss den Brief abgeben, wer war das gleich?",
        "Quel marché m'avais-tu conseillé à Palerme ?",
        "Comment s'appelle le photographe du mariage ?",
        "你知道我对什么过敏吗？",
        "What did Caroline's dog eat?",
        "You are funny.",
        "What was 4711 about?",
        "What was 192.168.7.13 about?",
        "What would you bring to Leeds?",
        "🙂?",
        "?!",
        "",
        "Do you like cats? " + "Sage green paint, mustard walls, terracotta tiles, copper taps, walnut shelves.",
    ],
)
def test_questions_about_what_was_said(text: str) -> None:
    assert not asks_about_you(text)


@pytest.mark.parametrize(
    "text",
    [
        "Right, I'm off to bed, talk to you tomorrow!",
        "Bis morgen dann, gute Nacht!",
        "好了我去睡觉了，明天见！",
        "Herzlichen Dank!",
    ],
)
def test_who_takes_leave_thanks(text: str) -> None:
    assert is_thanks(text)


def test_a_long_message_that_thanks_is_about_more() -> None:
    assert not is_thanks(
        "Thanks! The surgeon wants six weeks of physio before an operation of the torn meniscus, Tuesday mornings."
    )


def test_times_and_numbers_are_left_out() -> None:
    assert without_times(("friday", "minutes", "214", "pretzel", "周五", "二時間", "일요일인데")) == ("pretzel",)
    assert without_times(("2024", "21st", "500", "12000", "4711")) == ("4711",)
