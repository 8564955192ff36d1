# ruff: noqa: RUF001 - words in Cyrillic letters, and marks of Chinese and Japanese
"""What holds now: which messages say that something changed, and which older ones they change. Pure functions.

Two judgements differ in how sure they are. A later message that tells of a change and has the words of the question is the better
answer, so it goes first. Only where both messages say the same sentence about the user, but for one value, is the older one marked.
The languages are those of `_text/telling.py`.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from operator import ne
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from langchain_core.messages import HumanMessage

from langchain_workingmem._redis.codec import from_micros
from langchain_workingmem._redis.keys import values_key
from langchain_workingmem._text.rendering import words_in
from langchain_workingmem._text.telling import count_shared, telling_words
from langchain_workingmem.models import Outdated
from langchain_workingmem.recall.hits import repeating

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from langchain_workingmem._engine.effects import Command
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import StoredMessage
    from langchain_workingmem.recall.hits import Fetched, Found, Position
    from langchain_workingmem.recall.query import Query
    from langchain_workingmem.recall.ranking import Ranked

    Said: TypeAlias = tuple[
        frozenset[str], tuple[str, ...], frozenset[str]
    ]  # of a clause: its words, numbers and months

COMPARED = 6  # of the best candidates, among which what was said later is looked for
LONGEST = 200  # tokens of a later message: a long one is about much else
_LEAST = 0.3  # of the score of the older message, that a later one has
_SHARE = 0.5  # of the words of the question, that both have
_READ = 2_000  # characters of a message that are compared


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# fmt: off
_HOLDS = _words("""
    now currently nowadays jetzt inzwischen mittlerweile maintenant désormais dorénavant ahora actualmente теперь сейчас""")
_CHANGED = _words("""
    changed moved switched updated rescheduled postponed increased raised extended shortened reduced decreased lowered replaced
    revised relocated upgraded geändert verschoben verlegt gewechselt erhöht verlängert verkürzt gesenkt reduziert umgezogen
    aktualisiert ersetzt changé déplacé reporté augmenté prolongé raccourci réduit déménagé remplacé repoussé cambiado cambié cambió
    cambiaron mudado mudé movido movieron aplazado aplazaron aumentado aumenté ampliado reducido sustituido изменил изменила изменился
    изменилась изменили перенёс перенес перенесли перенесён перенесен увеличил увеличила увеличили сменил сменила продлили сократили
    переехал переехала обновил обновила""")
_ENDS = _words("""
    longer anymore stopped quit gave given mehr aufgehört plus arrêté ya dejé dejado больше перестал перестала бросил бросила""")
_SURE = _HOLDS | _CHANGED | _ENDS | {"gezogen", "any more", ""}  # "": a sign of Chinese, Japanese or Korean
_HINTS = _SURE | _words("""
    new recent recently reached change changes update increase improved grown growth adjusted actually added cancelled canceled decided instead
    reschedule neu neue neuen neuer neues kürzlich stattdessen abgesagt entschieden nouveau nouvelle récemment finalement plutôt
    nuevo nueva recientemente reprogramado reprogramada finalmente новый новая новое новые недавно вместо решил решила""")
_FAVOURITES = (  # a person has one of a kind at a time
    "favourite", "favorite", "preferred", "liebling", "préféré", "favori", "favorit", "preferid", "любим", "喜欢", "喜歡", "好き", "좋아하")
_MONTHS = _words("""
    january february march april may june july august september october november december jan feb mar apr jun jul aug sep sept oct nov
    dec januar februar märz mai juni juli oktober dezember janvier février mars avril juin juillet août septembre octobre novembre
    décembre enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre января февраля марта апреля мая
    июня июля августа сентября октября ноября декабря am pm uhr""")
_LOOSE = _words("""
    may might plan planning plans planned consider considering thinking think want wants wish hope hoping would could should if will
    ll going gonna soon next also too additionally besides another either said says told asked heard wrote used was were had before
    after except sometimes vielleicht plane möchte würde könnte sollte wenn falls überlege hoffe werde wird bald nächste nächsten
    nächstes auch zusätzlich außerdem noch sagt sagte meint war hatte früher manchmal nach peut être voudrais veux envisage pense si
    vais prochain prochaine bientôt aimerais aussi également dit était avais avant parfois quizás quizá tal vez quiero quisiera planeo
    pienso voy pronto próximo próxima también además dice dijo era tenía antes может возможно хочу планирую думаю бы если буду
    собираюсь скоро следующем тоже также ещё еще сказал сказала говорит был была раньше иногда she they we you his her hers their them
    him our ours us your er sie ihr ihre ihm ihn wir uns unser unsere bist hast dein deine il elle ils elles son sa ses leur leurs
    nous notre nos tu ton ta tes vous votre él ella ellos ellas su sus nosotros nuestro nuestra tú tus usted он она они его её ее их
    мы наш наша нас ты твой твоя вы ваш""") - {"may", "nach"}
# fmt: on
_HOLDS_CJK = re.compile(r"现在|現在|如今|今は|今の|今では|이제|지금")
_CHANGED_CJK = re.compile(
    r"改成|改为|改到|换成|搬到|推迟到|提前到|增加到|减少到|延长到|提高到|降低?到|涨到|调到|変わ|変更|引っ越し|移った|延期|増や|減ら|[にへ](?:引き)?[上下]げ|延長|바뀌|바뀐|바꿨|변경|이사했|옮겼|연기|늘렸|줄였|올렸|내렸|연장"
)
_LOOSE_CJK = re.compile(
    r"可能|也许|打算|想|计划|如果|要是|将|会|[也还]|说|以前|他|她|我们|你|かも|たい|つもり|予定|たら|なら|来年|来月|も(?!う)|言っ|前は|彼|あなた"
    r"|싶|지도|계획|예정|려고|만약|다음|내년|도\s|했대|그는|그녀|우리|너는|당신"
)
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_ENDED = re.compile(
    r"\b(?:no longer|(?:i(?:['’]ve)?|have) (?:stopped|quit|gave up|given up)"
    r"|nicht mehr|keine?n? .{1,40} mehr|aufgehört|n(?:e |['’]).{1,30} plus|arrêté de|ya no|dejé de|he dejado de"
    r"|больше не|перестала?|бросила?)\b|n(?:o|['’]?t) .{1,60} any ?more\W*$|不再|もう[^。]{1,20}(?:ません|ない)|더 이상"
)
_DENIED = re.compile(  # what a sentence denies, one that says "now" or "no longer" does not change
    r"\b(?:not|never|no|none|cannot|nicht|nie|niemals|keine?[nmrs]?|pas|jamais|nunca|jamás|не|никогда|нет)\b|n['’]t\b"
    r"|[不没沒]|ない|ません|않|안 |없"
)
_PLACE = r"([^\W\d_a-zà-ÿа-яё][\w'’-]+)"  # begins with a capital letter
_HOMES = re.compile(
    rf"\bI(?:['’]m|['’]ve)?(?: \w+){{0,3}}? (?:live|living|based|moved|relocated)(?: back)? (?:in|to) {_PLACE}"
    rf"|\b[Ii]ch (?:wohne|lebe)(?: \w+)?? in {_PLACE}|\b[Ii]ch bin(?: \w+){{0,2}}? nach {_PLACE} (?:um)?gezogen"
    rf"|\b[Jj](?:['’]|e )(?:(?:\w+ )?habite|vis|ai déménagé|viens de déménager)(?: \w+)?? à {_PLACE}"
    rf"|\b(?:[Vv]ivo|[Mm]e mudé|[Mm]e he mudado)(?: \w+)?? (?:en|a) {_PLACE}"
    rf"|(?:\b[Яя] (?:\w+ )?)(?:живу|переехала?)(?: \w+)?? в {_PLACE}"
    r"|^我(?:现在)?(?:住在|(?:已经)?搬到了?)([^\s，。,.了的]{2,4})|^(?:私は|僕は)?(?:今は)?([^\sはが、。]{2,8})に(?:住んで|引っ越しました)"
    r"|^(?:저는|나는) (?:이제 )?(\w{2,6}?)(?:에 살|에서 살|으?로 이사했)"
)
_MOVED = re.compile(r"moved|relocated|gezogen|déménag|mud[aé]|переехал|搬到|引っ越|이사")
_SENTENCE = re.compile(r"[^.!?;\n。！？；]*(?:[.](?=\w)[^.!?;\n。！？；]*)*[.!?;\n。！？；]?")
_CLAUSE = re.compile(r"[,，、:：]|\s[-–—]\s|\b(?:and|but|und|aber|et|mais|y|pero|и|но)\b")
_WORD = re.compile(r"[^\W_]+")
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_VALUE = re.compile(  # a number that is said of something, and no part of its name
    r"(?:\b(?:is|are|have|has|to|at|ist|sind|habe|auf|um|am|est|ai|à|au|es|son|tengo|a|al|до|на)\b|[是到はが은는이가])"
    r"\s*(?:(?!\d)\w+ ){0,2}[$€£¥]?\d[\d.,:]*"
)
_LABEL = re.compile(r"\b[A-HJ-Z]\b")  # "door B"
_KIND = re.compile(r"(?:least |most )?favou?rite \w+")  # what there is one of
_NONE: frozenset[str] = frozenset()  # one for all clauses: an empty set takes 200 bytes
_OPEN = re.compile(r"[\"“”„«»「」『』?？]|\b(?:may|if|[Hh]e(?! \w+[ai]do\b))\b")  # quoted or asked, or that may be


def spares_of(query: Query, ranked: Sequence[Ranked], chosen: Sequence[Ranked]) -> list[Ranked]:
    """Return the candidates behind the chosen ones that may say what holds now; their texts are not fetched yet."""
    if query.reranked or not 0 < len(chosen) < COMPARED or chosen[0].timely:
        return []
    taken, least = {one[:2] for one in chosen}, _LEAST * chosen[0].score
    is_worded, threads = any(one.worded for one in chosen), {one.thread for one in chosen}
    best = ranked[:COMPARED]
    taken |= repeating(best, query)
    return [
        one
        for one in best
        if one.tokens <= LONGEST
        and one.score >= least
        and (one.worded if is_worded else one.thread in threads)  # another thread is another call
        and not one.observation
        and one[:2] not in taken
    ]


def changes_in(text: str) -> frozenset[str]:
    """Return the words of change that a message has, such as "now", "moved" or "no longer"."""
    plain = text.lower()
    if not plain.isascii() and _CJK.search(plain):
        has_some = _HOLDS_CJK.search(plain) or _CHANGED_CJK.search(plain) or _ENDED.search(plain)
        return frozenset([""]) if has_some else frozenset()
    for sign in ",.!?;:'’\"":
        plain = plain.replace(sign, " ")  # together a tenth of the time of an expression for words
    found = _HINTS.intersection(plain.split())
    return found | {"any more"} if " any more" in plain else found


def outdates(newer: str, older: str) -> str | None:
    """Return the sentence of a message by which an older one of the same person no longer holds, None where that is not sure.

    Questions, plans, additions, and what is said of or by others never are.
    """
    told: list[_Told] | None = None
    for sentence in _assertions(newer):
        if not _SURE.isdisjoint(changes_in(sentence)):
            if told is None:
                told = [
                    one for one in map(_Told.of, _assertions(older)) if not one.denied and (one.home or one.clauses)
                ]
            if _replaces(sentence, told):
                return sentence
    return None


class _Told(NamedTuple):
    """What one sentence of an older message says; read once, as a message may have hundreds of them."""

    denied: bool
    home: str | None
    clauses: tuple[tuple[str, Said], ...]

    @classmethod
    def of(cls, sentence: str) -> _Told:
        lower = sentence.lower()
        is_denied = bool(_DENIED.search(lower) or _ENDED.search(lower))
        return cls(is_denied, _home(sentence), _clauses(sentence))


def _assertions(text: str) -> Iterable[str]:
    """Yield the sentences that say what is so."""
    for found in _SENTENCE.findall(text[:_READ]):
        sentence = found.strip()
        words = {*_WORD.findall(sentence.lower())}
        is_loose = not words.isdisjoint(_LOOSE) or _OPEN.search(sentence)
        if words and not is_loose and not (not sentence.isascii() and _LOOSE_CJK.search(sentence)):
            yield sentence


def _replaces(newer: str, told: Iterable[_Told]) -> bool:
    """Tell whether a sentence says the same as one of the older ones, but for one value."""
    words = {*_WORD.findall(newer.lower())}
    is_cjk = not newer.isascii() and bool(_CJK.search(newer))
    holds = bool(_HOLDS_CJK.search(newer)) if is_cjk else not words.isdisjoint(_HOLDS)
    moved = bool(_MOVED.search(newer))
    changed = bool(_CHANGED_CJK.search(newer)) if is_cjk else moved or not words.isdisjoint(_CHANGED)
    ended = bool(_ENDED.search(newer.lower()))
    if not (holds or changed or ended) or (not ended and _DENIED.search(newer.lower())):
        return False
    home, clauses = _home(newer) if holds or moved else None, _clauses(newer)
    for older in told:
        if home and older.home:
            if home[:4] != older.home[:4]:
                return True
            continue
        for clause, now in clauses:
            for before, then in older.clauses:
                if _ends(now, then) if ended else _differs(clause, now, before, then):
                    return True
    return False


def _clauses(sentence: str) -> tuple[tuple[str, Said], ...]:
    """Return what each clause says that tells something."""
    said = ((clause, _said(clause)) for clause in _CLAUSE.split(sentence))
    return tuple((clause, one) for clause, one in said if one[0])


def _ends(now: Said, then: Said) -> bool:
    """Tell whether a clause denies another one, which says hardly more."""
    return bool(now[0]) and now[0] <= then[0] and len(then[0] - now[0]) <= 1 and now[1:] == then[1:]


def _differs(clause: str, now: Said, before: str, then: Said) -> bool:
    """Tell whether two clauses differ in a number or a date alone, or in the value of something that is the user's favourite."""
    if now[1:] != then[1:]:
        is_one = len(now[1]) == len(then[1]) > 0 and sum(map(ne, now[1], then[1])) <= 1
        is_same = bool(now[0]) and now[0] == then[0] and _names(clause) == _names(before)
        return is_one and is_same and bool(_VALUE.search(clause) and _VALUE.search(before))
    if now[0].isdisjoint(then[0]) or not len(now[0] - then[0]) == 1 == len(then[0] - now[0]):
        return False
    texts = clause.lower(), before.lower()
    kinds = {found[0] for text in texts if (found := _KIND.search(text))}
    return len(kinds) < len(texts) and any(one in texts[0] and one in texts[1] for one in _FAVOURITES)


def _names(clause: str) -> tuple[list[str], list[str]]:
    """Return the numbers and letters that name what a clause is about: those of "room 2" and "door B"."""
    return _NUMBER.findall(_VALUE.sub(" ", clause)), _LABEL.findall(clause)


def _home(sentence: str) -> str | None:
    """Return the place where the user says to live."""
    found = _HOMES.search(sentence)
    return next(filter(None, found.groups()), "").lower() if found else None


def _said(clause: str) -> Said:
    """Return the words of a clause that tell something, without those of change, and its numbers and months."""
    lower = clause.lower()
    if not lower.isascii() and _CJK.search(lower):
        lower = _CHANGED_CJK.sub(" ", _HOLDS_CJK.sub(" ", lower))
    words = frozenset(one for one in telling_words(lower) if one.isalpha()) - _MONTHS - _HINTS
    return words, tuple(_NUMBER.findall(lower)), _MONTHS.intersection(_WORD.findall(lower)) or _NONE


def prevailing(query: Query, hits: Sequence[Found], fetched: Fetched, spares: Iterable[Ranked] = ()) -> list[Found]:
    """Put what was said later in front of what it changes, and mark this where that is sure; of `spares` only such ones are hits.

    Where the question names a time, all stays as it is.
    """
    extra = {one[:2] for one in spares}
    found = [hit for hit in hits if hit.ranked[:2] not in extra]
    if any(hit.ranked.timely for hit in found):
        return found
    first = [hit for hit in hits[:COMPARED] if isinstance(fetched.rows[hit.position].message, HumanMessage)]
    rows = {hit.position: fetched.rows[hit.position] for hit in first}
    texts = {at: words_in(row.message)[:_READ] for at, row in rows.items()}
    changes = {hit.position: changes_in(texts[hit.position]) for hit in first if hit.ranked.tokens <= LONGEST}
    later = [hit for hit in first if changes.get(hit.position)]
    if not later:  # the usual case
        return found
    words = telling_words(query.text)
    need = max(min(2, len(words)), _SHARE * len(words))

    def is_answer(hit: Found) -> bool:
        return bool(words) and count_shared(words, texts[hit.position]) >= need

    for hit in sorted(later, key=lambda hit: (rows[hit.position].stored_at, hit.position)):
        current = next((at for at, one in enumerate(found) if one.position == hit.position), len(found))
        target, answers, is_sure = current, is_answer(hit), not _SURE.isdisjoint(changes[hit.position])
        if not answers and not is_sure:
            continue
        for at, other in enumerate(found):
            if other.position not in rows or not _follows(rows[hit.position], rows[other.position]):
                continue
            sentence = outdates(texts[hit.position], texts[other.position]) if is_sure else None
            if sentence and other.position not in fetched.ended:  # what working memory says needs no guess
                found[at] = other._replace(outdated=(hit.position, sentence))
            near = hit.ranked.score >= _LEAST * other.ranked.score
            if sentence or (at < target and near and answers and is_answer(other)):
                target = min(target, at)
        if target < current:
            moved = found.pop(current) if current < len(found) else hit
            score = max(hit.ranked.score, found[target].ranked.score)
            found.insert(target, moved._replace(ranked=hit.ranked._replace(score=score)))
    return found


def marks_of(state: MemoryState, threads: Iterable[str], resource_id: str | None) -> list[Command]:
    """Return the commands that read which messages stand behind values that no longer hold; `read_marks` reads the replies."""
    if not state.keeps:
        return []
    keys = [state.keys.of(id).memory for id in threads]
    if state.remembering.scope == "resource":
        keys = [] if resource_id is None else [state.keys.of_resource(resource_id)[1]]
    return [("HGET", values_key(key), "ended") for key in keys]


def read_marks(replies: Iterable[bytes | None], rows: Mapping[Position, StoredMessage]) -> dict[Position, Outdated]:
    """Return of these messages those that stand behind a value which no longer holds, and what holds instead."""
    wanted = {(row.thread_id, row.message.id): at for at, row in rows.items()}
    ended: dict[Position, list[Outdated]] = {}
    for reply in filter(None, replies):
        for thread, message, text, since, by_thread, by_message in json.loads(reply):
            if (at := wanted.get((thread, message))) is not None:
                one = Outdated(
                    text=text, since=from_micros(since), thread_id=by_thread, message_id=by_message, is_value=True
                )
                ended.setdefault(at, []).append(one)
    return {at: replace(first, others=tuple(others)) if others else first for at, (first, *others) in ended.items()}


def _follows(newer: StoredMessage, older: StoredMessage) -> bool:
    """Tell whether a message was stored after another one of the same author."""
    if newer.message.name != older.message.name:
        return False
    is_next = newer.thread_id == older.thread_id and newer.seq > older.seq
    return is_next or (newer.thread_id != older.thread_id and newer.stored_at > older.stored_at)
