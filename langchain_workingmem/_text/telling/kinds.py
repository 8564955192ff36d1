# ruff: noqa: RUF001 - words in Cyrillic letters, and marks of Chinese and Japanese
"""Which messages are about themselves: orders, thanks, and questions about the one who is asked.

They need little of what was said in other conversations. The languages are those of words.py.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from langchain_workingmem._text.telling.words import has_mark, is_question, read_words, telling_words, words_of
from langchain_workingmem._text.time_words import ROLES

if TYPE_CHECKING:
    from collections.abc import Iterable

# fmt: off
_ORDERS = {language: words_of(words) for language, words in {
    "en": """sort translate write rewrite correct fix create generate draft summarize summarise shorten list calculate compute
        convert explain format rephrase paraphrase proofread compose draw count add change edit turn spell define solve check
        simplify expand continue show code print design outline rhyme make give find invent pick""",
    "de": """sortiere sortier übersetze übersetz schreib schreibe korrigiere korrigier verbessere verbesser erstelle erstell
        fasse fass kürze kürz berechne rechne nenne nenn formuliere formulier erkläre erklär zähle zähl ordne liste mach mache
        ergänze ändere wandle gib zeig zeige erfinde reime vereinfache programmiere""",
    "fr": """trie traduis traduire écris écrire rédige corrige reformule résume raccourcis calcule convertis explique liste crée
        compose compte ajoute change simplifie complète classe range invente donne montre cite conjugue transforme mets fais""",
    "es": """ordena traduce escribe escribeme escríbeme redacta corrige reformula resume acorta calcula convierte explica lista
        crea compón cuenta añade cambia simplifica completa clasifica inventa dame muestra enumera hazlo haz pásalo pon""",
    "ru": """отсортируй переведи напиши исправь перепиши сократи посчитай вычисли переформулируй объясни составь придумай
        перечисли создай дополни измени упрости расставь преврати сделай дай покажи назови проверь сочини упорядочи""",
    "it": """ordina traduci scrivi scrivimi correggi riscrivi riassumi accorcia calcola converti spiega elenca crea inventa conta
        aggiungi cambia semplifica completa dammi mostra fai""",
    "pt": """ordena traduz traduza escreve escreva corrige corrija reescreve resume resuma calcula calcule explica explique lista
        liste cria crie inventa conta adiciona muda simplifica completa mostra faz faça""",
    "nl": """sorteer vertaal schrijf verbeter corrigeer herschrijf vat bereken reken leg noem maak bedenk tel voeg verander
        vereenvoudig geef toon vul""",
    "pl": """posortuj przetłumacz napisz popraw przepisz streść skróć oblicz policz wyjaśnij wymień stwórz wymyśl dodaj zmień
        uprość uzupełnij pokaż podaj zrób""",
}.items()}
_POLITE = words_of("please can could you bitte kannst du mir por favor пожалуйста")
_REQUESTS = words_of("""
    can could would will kannst könntest würdest peux pourrais puedes podrías можешь мог могла""")
_THANKS = words_of("""
    thanks thank dank thx cheers danke merci gracias спасибо благодарю grazie obrigado obrigada bedankt dankjewel dziękuję dzięki""")
_LEAVING = (
    "good night", "talk to you later", "talk to you soon", "talk to you tomorrow", "see you later",
    "see you soon", "see you tomorrow", "gute nacht", "bis morgen", "bis bald", "bis später", "bis dann", "bonne nuit", "à demain",
    "à bientôt", "hasta mañana", "hasta luego", "hasta pronto", "buenas noches", "спокойной ночи", "до завтра", "до свидания",
    "до скорого", "晚安", "明天见", "再见", "おやすみ", "また明日", "잘 자", "잘자", "내일 봐")
# "Are you a robot?" is about nothing that was said, but "What did you suggest?" and "When is my train?" are
_YOU = {language: words_of(words) for language, words in {
    "en": "you your yours yourself u",
    "de": "du dich dir dein deine deinen deinem deiner deins",
    "fr": "tu te toi ton tes ta vous votre vos",  # where "du" is "of the"
    "es": "tú tu tus te ti contigo eres estás usted ustedes",
    "ru": "ты тебя тебе тобой твой твоя твоё твое твои твоего твоих твою вы вас вам вами ваш ваша ваше ваши",
}.items()}
_ME = words_of("""
    i me my mine myself we us our ours ich mich mir mein meine meinen meinem meiner meins wir uns unser unsere unseren unserem unserer
    je j m moi mon ma mes nous notre nos yo mí mi mis mío mía míos mías conmigo nosotros nosotras nuestro nuestra nuestros nuestras
    я меня мне мной мой моя моё мое мои моего моей моему моим моих мою мы нас нам нами наш наша наше наши нашего нашей бы
    would should know sais dit dire sabes dijiste dicho""")
# what somebody said, and what an assistant does for a user: "Did you book the hut?"
_SAYING = (*words_of("""
    rememb recall tell told say said suggest recommend mention advice advise weißt erinner sag gesagt empf vorgeschlagen genannt geraten
    würd rappel souviens conseil recommand propos recuerd decir recomend suger aconsej знае помн скаж говорил сказал совет предл
    рекоменд
    booked draft send sent writ wrote order reserv schedul estim calcul choos chose find found promis offer attach remind transl tip idea
    gebucht reserviert bestellt geschickt gesendet geschrieben gefunden berechnet geschätzt schätzung ausgesucht eingetragen notiert
    übersetzt tipp idee ahnung vorschl angebot
    réserv command envoyé écrit trouvé choisi traduit rédig noté idée astuce
    encontr pedist pedid enviast enviad escri elegist elegid anotast anotad traduj
    заброн заказ отправ послал написал нашёл нашел нашла посчитал оцени выбра перев запис напомн идея"""),)
_DID = re.compile(r"\b(?:did|have) you (?:\w+ )?(?:book|list|name|plan|put|set)\b", re.IGNORECASE)  # which are nouns elsewhere
_NOBODY = frozenset[str]()
_YOU_CJK = re.compile("[你您]|あなた|너[는도]|넌|네가|당신")
_ME_CJK = re.compile(
    "我|私|僕|俺|나는|내가|나의|저는|제가|우리|记得|知道|说过|说的|告诉|推荐|建议|提议|订了|预[订定约]|写了|发[了给]|估计|算出|安排|找到|选了|主意|覚え|知って|言って|教え|勧め|おすすめ|予約|送っ|書い|見つけ|選ん|見積|提案|기억|알아|알려|말했|추천|예약|썼|찾았|골랐|견적|제안|주문")
# fmt: on
_ORDERS_CJK = re.compile(
    r"^(?:请|帮我)?把.{0,12}(?:排序|改|翻译|写|换)|^(?:请|帮我)?(?:翻译|写一|写首|写封|改一下|改写|润色|总结|列出|列举|计算|算一下|解释|编一|排序|用Python)|(?:再短|短一点|再长)"
    r"|(?:並べ(?:替え)?て|訳して|翻訳して|書いて|直して|要約して|まとめて|計算して|作って|考えて|短くして|挙げて|言い換えて|変えて)(?:ください|くれ|ね|よ)?(?:[。！!]?$|[：:])|^次の"
    r"|(?:정렬|번역|작성|수정|요약|계산|설명|나열|고쳐|써|만들어|줄여|바꿔|지어|알파벳순|가나다순).{0,6}(?:줘|주세요|해|봐)(?:[.!]?$|:)"
)
_THANKING = re.compile("谢谢|多谢|感谢|謝謝|ありがと|サンキュ|感謝|고마워|고맙|감사|ขอบคุณ")
_SENTENCE = re.compile(r"[^.!?…。！？\n]+(?:\.(?=\d)[^.!?…。！？\n]+)*[.!?…。！？]*")
_SUM = re.compile(  # not within a number that begins with a letter: c01x00
    r"(?<![A-Za-z\d])\d+\s*(?:[*+x×÷%]|\s[/-]\s|mal\b|plus\b|fois\b|por\b|más\b|умножить|плюс|加|乘|减|かける|足す|곱하기|더하기)\s*(?:на\s*)?\d|\d\s*%"
    r"|\d\D{0,8}(?:割|나누|나눠|除以)"
)
# a sum, but beside words that tell something a score, a size, or days of a month; a longer one is a date, or the number of a telephone
_PAIR = re.compile(r"(?<![\w/-])[1-9]\d{0,2}[/x-]\d{1,3}(?![\w/-])")
_NUMBER = re.compile(r"(?:\d{1,3}|(?:19|20)\d\d|\d+00)[stndrh]{0,2}")  # others name something
_DIGIT = re.compile(r"\d")
_SHORT_TALK = 8  # words that tell something, of the longest message that may ask about nothing but the one who is asked
_AROUND = " .,!…。！~～"
_CLAUSE = re.compile("[,，、;:]")
_TIMES = frozenset(word for roles in ROLES.values() for word, role in roles.items() if role in "mwuhnse")
_TIMES_CJK = re.compile(
    "[\\d一二三四五六七八九十两百千半]*(?:个?小时|分钟|点钟?|秒钟?|天|周[一二三四五六日末]?|星期[一二三四五六日天]?|个?月|年|時間|[分秒日年]|か?月|週間?|週末"
    "|[月火水木金土日]曜日?|시간|분|초|일|주말?|개월|[월년]|[월화수목금토일]요일)[가-힣]{0,2}"
)


def is_order(text: str) -> bool:
    """Tell whether a message is a task ("sort this list"), which needs little of what was said in other conversations."""
    words, language = read_words(text)
    first = next((word for word in words if word not in _POLITE), "")
    known = _ORDERS[language] if language else frozenset().union(*_ORDERS.values())
    is_asked = has_mark(text)  # "Can you list what I said about it?" is about what was said
    is_sum = bool(_DIGIT.search(text)) and _is_sum(text)  # most texts have no digit, and are known sooner by that
    return is_sum or (not is_asked and (first in known or bool(_ORDERS_CJK.search(text.strip()))))


def _is_sum(text: str) -> bool:
    without_pairs = _PAIR.sub(" ", text)
    if _SUM.search(without_pairs):
        return True
    return without_pairs != text and not any(map(str.isalpha, telling_words(without_pairs)))


def is_thanks(text: str) -> bool:
    """Tell whether a short message thanks for something or takes leave, and asks nothing."""
    if is_question(text) or len(telling_words(text)) > _SHORT_TALK:
        return False
    said = text.lower().strip(_AROUND)
    is_said = not _THANKS.isdisjoint(read_words(text)[0]) or said.startswith(_LEAVING) or said.endswith(_LEAVING)
    return is_said or (not text.isascii() and bool(_THANKING.search(text)))


def asks_about_you(text: str) -> bool:
    """Tell whether a short message asks only about the one who is asked: "How was your day?", "Are you a robot?".

    Not what he said, did for the user or would do ("What did you suggest?", "Did you book the hut?"). "My train is late again, can you believe it?" is one, too.
    """
    if len(telling_words(text)) > _SHORT_TALK:
        return False
    asked = [one for one in map(str.strip, _SENTENCE.findall(text)) if is_question(one)]
    return bool(asked) and all(map(_is_about_you, asked))


def _is_about_you(sentence: str) -> bool:
    telling = telling_words(sentence)
    is_date = sum(len(word) for word in telling if word.isdigit()) > 3  # it may have been named before
    if telling and all(map(_is_time, telling)) and not is_date:
        return not _says_me(sentence)  # "How was the weekend?"
    if _says_you(sentence) and not _says_me(sentence) and read_words(sentence)[0][0] not in _REQUESTS:
        return True
    last = _CLAUSE.split(sentence)[-1]
    return last != sentence and not telling_words(last) and _says_you(last) and not _says_me(last)


def _says_you(text: str) -> bool:
    """Tell whether a text names the one who is asked."""
    words, language = read_words(text)
    is_said = not _YOU.get(language or "", _NOBODY).isdisjoint(words)
    return is_said or (not text.isascii() and bool(_YOU_CJK.search(text)))


def _says_me(text: str) -> bool:
    """Tell whether a text names the one who asks, or what was said."""
    words, _ = read_words(text)
    is_said = not _ME.isdisjoint(words) or any(word.startswith(_SAYING) for word in words) or bool(_DID.search(text))
    return is_said or (not text.isascii() and bool(_ME_CJK.search(text)))


def without_times(words: Iterable[str]) -> tuple[str, ...]:
    """Leave out numbers, and names of months, days and units of time, which statements about anything share."""
    return tuple(word for word in words if not _is_time(word))


def _is_time(word: str) -> bool:
    return bool(_NUMBER.fullmatch(word)) or word in _TIMES or (not word.isascii() and bool(_TIMES_CJK.fullmatch(word)))
