"""Words by which questions name times, in the languages that `times` reads.

A test compares months, weekdays and units with those of dateparser. A phrase counts only if its words have an order that
`times` knows, so a word may be ordinary, too: "may", "march", "second".
"""

from __future__ import annotations

# What a word does, by the letter that stands for it in the patterns of `times`; forms of one word are joined by `|`:
# m month; w weekday; u day, week, month, year; h minute, hour; t yesterday, the day before; i this; v part of the day
# b "last" before its noun; B after it; a "ago"; n number, in order from one; g words in between
# p words before a month, a weekday or a year; q "between", "from" before the first of two dates, c "and" between them
# z "before", "after" between a duration and a date; s season, e weekend, f holiday: only in English
_LANGUAGES = {
    "en": {
        "m": "january|jan february|feb march|mar april|apr may june|jun july|jul august|aug september|sept|sep "
        "october|oct november|nov december|dec",
        "w": "monday tuesday wednesday thursday friday saturday sunday",
        "u": "day|days week|weeks month|months year|years",
        "h": "minute|minutes hour|hours",
        "t": "yesterday",
        "i": "this",
        "v": "morning afternoon evening night",
        "b": "last past previous",
        "a": "ago",
        "p": "in on since until till by during around early late mid over at end beginning start middle",
        "q": "between from",
        "c": "and to",
        "z": "before after",
        "g": "the of",
        "n": "one|a|an two|couple three|few four|several five six seven eight nine ten eleven twelve",
        "s": "spring summer autumn|fall winter",
        "e": "weekend",
        "f": "christmas halloween",
    },
    "de": {
        "m": "januar|jänner februar märz april mai juni juli august september oktober november dezember",
        "w": "montag dienstag mittwoch donnerstag freitag samstag|sonnabend sonntag",
        "u": "tag|tagen woche|wochen monat|monaten jahr|jahren",
        "h": "minute|minuten stunde|stunden",
        "t": "gestern vorgestern",
        "b": "letzte|letzten|letzter|letztes vorige|vorigen|voriger|voriges",
        "a": "vor",
        "p": "im in am seit bis ab anfang mitte ende",
        "g": "der dem den",
        "n": "ein|eine|einer|einem zwei drei vier fünf sechs sieben acht neun zehn elf zwölf",
    },
    "fr": {
        "m": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
        "w": "lundi mardi mercredi jeudi vendredi samedi dimanche",
        "u": "jour|jours semaine|semaines mois an|ans|année",
        "h": "minute|minutes heure|heures",
        "t": "hier",
        "B": "dernier|dernière passé|passée",
        "a": "y",
        "p": "en depuis début fin mi",
        "g": "le la l du de d il a avant",
        "n": "un|une deux trois quatre cinq six sept huit neuf dix onze douze",
    },
    "es": {
        "m": "enero febrero marzo abril mayo junio julio agosto septiembre|setiembre octubre noviembre diciembre",
        "w": "lunes martes miércoles jueves viernes sábado domingo",
        "u": "día|días semana|semanas mes|meses año|años",
        "h": "minuto|minutos hora|horas",
        "t": "ayer anteayer",
        "B": "pasado|pasada",
        "a": "hace",
        "p": "en desde hasta",
        "g": "el la de del",
        "n": "un|una dos tres cuatro cinco seis siete ocho nueve diez once doce",
    },
    "it": {
        "m": "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
        "w": "lunedì martedì mercoledì giovedì venerdì sabato domenica",
        "u": "giorno|giorni settimana|settimane mese|mesi anno|anni",
        "h": "minuto|minuti ora|ore",
        "t": "ieri",
        "B": "scorso|scorsa",
        "a": "fa",
        "p": "in nel da",
        "g": "il la l di del",
        "n": "un|una due tre quattro cinque sei sette otto nove dieci undici dodici",
    },
    "pt": {
        "m": "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
        "w": "segunda terça quarta quinta sexta sábado domingo",
        "u": "dia|dias semana|semanas mês|meses ano|anos",
        "h": "minuto|minutos hora|horas",
        "t": "ontem anteontem",
        "B": "passado|passada",
        "a": "há atrás",
        "p": "em no na desde",
        "g": "o de do feira",
        "n": "um|uma dois|duas três quatro cinco seis sete oito nove dez onze doze",
    },
    "nl": {
        "m": "januari februari maart april mei juni juli augustus september oktober november december",
        "w": "maandag dinsdag woensdag donderdag vrijdag zaterdag zondag",
        "u": "dag|dagen week|weken maand|maanden jaar",
        "h": "minuut|minuten uur",
        "t": "gisteren eergisteren",
        "b": "vorig|vorige afgelopen",
        "a": "geleden",
        "p": "in op sinds tot begin eind",
        "g": "de van het",
        "n": "een|één twee drie vier vijf zes zeven acht negen tien elf twaalf",
    },
    "pl": {
        "m": "stycznia|styczniu lutego|lutym marca|marcu kwietnia|kwietniu maja|maju czerwca|czerwcu lipca|lipcu "
        "sierpnia|sierpniu września|wrześniu października|październiku listopada|listopadzie grudnia|grudniu",
        "w": "poniedziałek wtorek środę czwartek piątek sobotę niedzielę",
        "u": "dzień|dni tydzień|tygodnie|tygodni|tygodniu miesiąc|miesiące|miesięcy|miesiącu rok|lata|lat|roku",
        "h": "minutę|minuty|minut godzinę|godziny|godzin",
        "t": "wczoraj przedwczoraj",
        "b": "zeszły|zeszłym ubiegły|ubiegłym",
        "a": "temu",
        "p": "w we od do",
        "n": "jeden|jedną dwa|dwie trzy cztery pięć sześć siedem osiem dziewięć dziesięć jedenaście dwanaście",
    },
    "ru": {
        "m": "январь|января|январе февраль|февраля|феврале март|марта|марте апрель|апреля|апреле май|мая|мае "
        "июнь|июня|июне июль|июля|июле август|августа|августе сентябрь|сентября|сентябре октябрь|октября|октябре "
        "ноябрь|ноября|ноябре декабрь|декабря|декабре",
        "w": "понедельник вторник среду четверг пятницу субботу воскресенье",
        "u": "день|дня|дней неделю|недели|недель|неделе месяц|месяца|месяцев|месяце год|года|лет|году",
        "h": "минуту|минуты|минут час|часа|часов",
        "t": "вчера позавчера",
        "b": "прошлый|прошлом|прошлую|прошлой",
        "a": "назад",
        "p": "в во с до на",
        "n": "один|одну два|две три четыре пять шесть семь восемь девять десять одиннадцать двенадцать",
    },
}

ROLES = {  # language -> word -> role
    language: {form: role for role, words in kinds.items() for form in words.replace("|", " ").split()}
    for language, kinds in _LANGUAGES.items()
}
# Language -> word -> its place among the words of its role, from 1: a number, a month, a weekday, how many days ago.
VALUES = {
    language: {
        form: number
        for words in kinds.values()
        for number, forms in enumerate(words.split(), 1)
        for form in forms.split("|")
    }
    for language, kinds in _LANGUAGES.items()
}
DAY, WEEK, MONTH, YEAR = 1, 2, 3, 4  # places of units
HOUR = 2  # place of the hour among minute and hour
# Chinese, Japanese and Korean: how many of which unit ago.
SAID = {
    **dict.fromkeys(("昨天", "昨日", "어제"), (1, DAY)),
    **dict.fromkeys(("前天", "一昨日"), (2, DAY)),
    **dict.fromkeys(("上周", "先週", "지난주"), (1, WEEK)),
    **dict.fromkeys(("上个月", "先月", "지난달"), (1, MONTH)),
    **dict.fromkeys(("去年", "昨年", "작년"), (1, YEAR)),
}
UNITS = {
    **dict.fromkeys(("天", "日", "일"), DAY),
    **dict.fromkeys(("周", "週間", "주"), WEEK),
    **dict.fromkeys(("个月", "か月", "개월"), MONTH),
    **dict.fromkeys(("年", "년"), YEAR),
}
# Languages by the words without which no phrase names a time. "an" and the like would let too many questions through.
NAMING: dict[str, tuple[str, ...]] = {}
for language, roles in ROLES.items():
    for word, role in roles.items():
        if role in "mwuhtvsef" and len(word) > 2:
            NAMING[word] = (*NAMING.get(word, ()), language)
