# ruff: noqa: RUF001 - words in Cyrillic letters, and marks of Chinese and Japanese
"""Which words of a message tell something, and which messages ask something or go on with the turn before.

Every conversation is full of the words of `_PLAIN`: they stand in questions and in small talk alike, so a message that shares
them with a stored one shares nothing. What is left of "And how is Pretzel doing today?" is "Pretzel"; of "thanks, good night!"
nothing is left. The lists are of English, German, French, Spanish, Russian, and shorter ones of Italian, Portuguese,
Dutch and Polish; Chinese, Japanese, Korean and Thai, where such words do not stand alone, have patterns.
"""

from __future__ import annotations

import re
from functools import lru_cache
from operator import add
from typing import TYPE_CHECKING

from langchain_workingmem._text.unicode import MARKS, UNSPACED, folded

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def words_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


# fmt: off
_PLAIN = {language: words_of(words) for language, words in {
    "en": """
        a about above across after afternoon again against ago all almost alone along already also although always am among an
        and another any anybody anyone anything anyway anywhere are aren around as ask asked at away awesome back be became
        because become been before began begin behind being below besides best better between both but by bye came can
        cannot cheers come comes coming cool could couldn did didn do does doesn doing don done down during each either else
        enough even evening ever every everybody everyone everything exactly far few fine finally first for forget forgot from
        fun gave get gets getting give given glad go goes going gone gonna good goodbye got great had hadn haha hahaha happy has
        hasn have haven having he hehe hello help helped her here hers herself hey hi him himself his how however if i im in
        indeed instead into is isn it its itself just keep kept kind kinda know known last late lately later least less let like
        little ll lol long look lot made make makes many may maybe me mean means mention mentioned might mine more morning most
        much must my myself near need needed needs never new next nice night no nobody none nope nor not nothing now
        of off often oh ok okay on once one only onto or other others our ours out over own perfect perhaps please possible
        probably put quite rather re really recently remember remind right said same saw say see seem seems seen shall she should
        shouldn since so some somebody someone something sometimes soon sorry star still stuff such super sure take talk talked
        tell than thank thanks that the their theirs them then there these they thing things think this those though thought
        through thx till time to today together told tomorrow tonight too took toward towards try ty type under until up upon us
        use used usually ve very wait wanna want wanted was wasn way we welcome well went were weren what whatever when where
        whether which while who whole whom whose why will with within without won wonderful would wouldn wow ya yeah yep yes
        yesterday yet you your yours yourself yup s d t m hmm absolutely
        ugh pff phew wow omg lmao hilarious mood weather idea believe imagine""",
    "de": """
        aber ach alle allem allen aller alles als also am an andere anderen anderer anderes ans auch auf aus ab bei beim bin bis
        bisschen bist bitte bloß da dabei dafür dagegen daher damals damit danach daneben dank danke dann daran darauf daraus
        darf darfst darin darüber darum das dass davon davor dazu dein deine deinem deinen deiner dem den denen denn der deren
        des deshalb dessen dich die dies diese diesem diesen dieser dieses dir doch dort dorthin drauf du dumm durch durfte
        eben ein eine einem einen einer eines einfach einige einmal endlich er erst erste erstmal es etwa etwas euch euer eure
        fast fertig für ganz gar gegen geht gehts gehen gell genau gerade gern gerne gestern gesagt genug gibt gings ging gleich
        gut gute guten guter gutes hab habe haben habt haha hallo halt hast hat hatte hatten hattest heute her
        heraus herzlich hey hi hier hin hinter hm ich ihm ihn ihnen ihr ihre ihrem ihren ihrer im immer in ins irgendwie ist ja
        je jede jedem jeden jeder jedes jetzt kann kannst kein keine keinem keinen keiner klar klasse kommen kommt könnte können
        könntest lass lange leider lieb liebe los mach machst macht machen mag mal man manchmal mehr mein meine meinem meinen
        meiner meines merci mich mir mit mitbekommen möchte moin morgen müssen muss musst na nach nacht nachher nachdem nämlich
        natürlich neben nee nehmen nein nett nicht nichts nie nimmt noch nochmal nun nur ob oder ohne ok okay prima recht
        richtig sag sagen sagst sagt sagte schade schatz schau schlaf schon schön schöne schönen sehen sehr sei seid sein seine
        seinem seinen seiner seit selbst servus sich sie sind so sogar solche soll sollen sollte sonst spaß später stehen statt
        stattdessen super tag tja toll tschüss tschau tun tut über überhaupt übrigens um und uns unser unsere unserem unseren
        unter usw viel viele vielen vielleicht vom von vor vorhin wahrscheinlich wann war waren warst warum was weg wegen weil
        weiß weißt weiter welche welchem welchen welcher welches wem wen wenig wenn wer werde werden wessen wie wieder wieso
        will willst wir wird wirklich wirst wo woher wohin wohl wollte wollen wofür worden worüber wozu wunderbar wurde würde
        ziemlich zu zuletzt zum zur zurück zusammen zwar zwischen abend eigentlich gemeint meinst hattet wars gings bestens
        mega cool ciao bye hm naja geholfen
        puh uff boah echt laune gelaunt stimmung wetter ahnung glauben herzliche herzlichen""",
    "fr": """
        à a ah ai aie ailleurs aller allez alors après as assez au aucun aucune aussi autre autres aux avait avais avant avec avez
        avoir avons beau beaucoup belle ben bien bientôt bisous bof bon bonjour bonne bonnes bonsoir bref c ça car ce ceci cela
        celle celles celui certain ces cet cette ceux chacun chaque chez ciao combien comme comment contre cool coucou d dans de
        déjà demain depuis dernier dernière derrière des désolé deux devant devoir dire dis disais dit dois doit donc dont du
        elle elles en encore enfin ensuite entre es est et étais était été être eu eux excellent exactement fais fait faire faut
        fois font génial gentil grand grande gros ha haha hein hello heure hier hop hum ici il ils j jamais je jour journée
        jusque juste l la là là-bas laisse laquelle le lequel les leur leurs lol lui m ma maintenant mais mal matin mdr me même
        merci mes meilleur mieux mince moi moins mois mon n ne ni nickel noël non nos notre nous nouveau nouvelle nuit
        oh ok on ont ou où ouais oui ouf par parce pardon parfait parle parler parlé part pas passe passé pendant pense petit
        petite peu peut peux plaît plus plusieurs plutôt pour pourquoi pourrais pouvait pouvez pouvoir premier première près
        presque prochain puis puisque qu quand quel quelle quelles quelqu quelque quelques quels qui quoi r rappelle rappelles
        re rien s sa sais sait salut sans se sera ses si sien soir soirée sois soit sommes son sont sous souvent souviens suis
        super sur sympa t ta tant tard te tellement tels temps tes toi ton top tôt toujours tous tout toute toutes très trop tu
        un une va vais vas vers veut veux viens vient vite voici voilà voir vois vont vos votre voulais vous vraiment vu y zut
              aide aidé aujourd hui hum revoilà final
        pff pfff ouf humeur chose idée rends compte croire""",
    "es": """
        a acerca adiós ah ahí ahora al algo alguien algún alguna algunas alguno algunos allá allí ante antes anoche aquel aquella
        aquello aquí así aún aunque ayer ayuda ayudado bastante bien bueno buena buenas buenos cada casi chao cómo como con conmigo
        contigo contra cosa cosas creo cual cuál cuáles cualquier cuando cuándo cuánta cuántas cuánto cuántos da dale de debe debo
        decir dejé del demás demasiado dentro desde después detrás di día días dice dices dicho dije dijiste donde dónde dos
        durante e el él ella ellas ellos en encima entonces entre era eran eras eres es esa esas ese eso esos esta está estaba
        están estar estas estás este esto estos estoy estuvo excelente fue fueron fui genial gracias gran grande gusta gusto ha
        haber había hablamos hace hacer haces hacia hago han hasta hay haya he hecho hizo hola hoy iba igual incluso ir ja jaja
        jajaja jamás la las le les listo lo los luego más mal mañana mas me mejor menos mes mi mí mía mientras
        mío mis misma mismo mucha muchas muchísimas mucho muchos muy nada nadie ni ningún ninguna no noche noches nos nosotros
        nuestra nuestro nueva nuevo nunca o oh ok oye otra otras otro otros para parece pero perdón perfecto poco pocos poder podría
        por porque porfa pues puede puedes puedo qué que quien quién quiénes quiero quiere recuerda recuerdas recuerdo rato s sabe
        saber sabes se sé sea ser será si sí sido siempre sin sino sobre sois solo sólo somos son soy su súper sus suya suyo tal
        también tampoco tan tanto tarde tardes te tema tener tengo ti tiene tienen tienes toda todas todavía todo todos tras tu tú
        tus tuve tuvo un una unas uno unos usted ustedes va vaya vale vamos van varias varios veces ver vez vi voy vuelta y ya yo
        dicen anda claro chévere guay crack majo risa mmm mil salvado
        uf uff buf buen humor ánimo idea verdad creer llevas""",
    "ru": """
        а ага без более больше был была были было быть в вам вами вас весь вечер вечера во вообще вот впрочем все всё всегда
        всего всем всех всю вся вы где да давай давайте даже два дела делать дело день для днём до добрый доброе доброй доброго
        другая другие другой другое думаю его ее её если есть еще ещё ж же за зачем здесь здравствуй здравствуйте знаешь знаю
        и из извини или им иногда их к кажется как какая какие каким каких какого какое какой какую кем когда кого ком кому
        конечно которая которого которой который которые которую кстати кто куда ладно ли лишь лол лучше люблю мало меня мне мной
        много может можешь можно мои моя моё мое мой моего моей моему моим моих мою мы на надо нам нами наконец нас
        наш наша наши не него нее неё ней нельзя нет ни нибудь никогда никто них ничего но ну нужно о об огромное один одна одно
        около он она они оно опять особенно от отлично отсюда ох очень перед письмо по под подожди подскажи поздно пока помнишь
        помню помоги помог помогло пор потом потому почему почти пожалуйста правда прекрасно при приветик привет приятно про просто
        против пусть раз разве рада рад с сам сама сами самый свой своего своей свою своим своих сегодня сейчас себе себя скажи
        сказал сказала сколько скоро слишком слушай снова со совсем спасибо спасибочки спокойной спустя сразу супер так также такая
        такие такой такое там тебе тебя тем теперь то тобой тогда того тоже только том тому тот точно ту тут ты у уж уже утро
        утра утром уф ух ха хаха хахаха хватит хорошо хорошая хороший хорошего хорошей хотел хотела хотеть хоть хотя хочу чаще чего
        чей чем через что чтоб чтобы чья чьё эй эта эти этим этих это этого этой этом этому этот эту ясно завтра вчера ночи ночь
        дня говорил говорила говорили классно круто здорово понял поняла понятно я ок хм ему будет снова спасибки лучший
        эх ох фу ахаха настроение погода представляешь""",
    "it": """
        a ad ai al alla allora chiama anche ancora anni avere aveva avevo bello bene buona buonanotte buongiorno buono che chi ci ciao
        come con cosa così cui da dal dalla dei del della delle di dice dimmi domani dopo dove e è ed ehi era ero fa fare fatto
        già giorno gli grazie ha hai hanno ho i ieri il in io l la le lei lo loro lui ma me mi mia mie mio miei molto ne nel nella
        no noi non o oggi ok ora per perché perfetto più poi prego quale quali qual quando quanti quanto quello questa questo qui
        ricordi sa se sei sera si sì sia sono sta stai sto su sua sue suo te ti tu tua tue tuo tutto un una uno va vi voi""",
    "pt": """
        a agora ainda algo ao aos as até bem boa chama bom com como da das de dela dele depois dia disse do dos e é ela ele eles em então
        era essa esse esta está este eu faz fez foi hoje isso já lá lembra logo mais mas me meu meus minha minhas muito na não nas nem no
        noite nos nós o obrigada obrigado oi olá onde ontem os ou para pela pelo perfeito por porque porquê pois qual quais quando
        quanto quantos que quê quem sabe se sem ser seu seus sim sobre sua suas também te tem tenho ter tive tu tua tudo um uma
        vai você vocês vou""",
    "nl": """
        aan al alles als altijd ben bent bij dag dan dank dankjewel dat de deze die dit doe doei doen door dus een en er gaat ga
        geen gisteren goed goedemorgen had hallo heb hebben heeft heet heel hem het hier hij hoe hoeveel hoi iets ik in is ja je jij
        jouw kan kunnen maar me mee meer met mij mijn morgen na naar nee niet niets nog nu of oké om onder ons ook op over prima te
        toch toen tot u uit van vandaag veel voor waar waarom wanneer waren was wat we weer weet wel welk welke wie wij worden wordt
        ze zeg zei zich zij zijn zo zou""",
    "pl": """
        a albo ale bardzo bez imię był była było być by ci co coś cześć czy czyj czyja czyje dla dlaczego dobra dobranoc dobry dobrze do
        dzień dziękuję dzięki dziś dzisiaj gdy gdzie go hej i ich ile im ja jak jaka jaki jakie jako je jego jej jest jestem jeszcze
        już kiedy kto która które który ma mam mi mnie moja moje mój może mu my na nam nas nasz nie nic niż o od ok on ona one oni po
        pod pamiętasz powiedz proszę przez przy są się siebie sobie super swoje swój ta tak także tam te tego tej ten teraz też to
        tu twoja twoje twój ty tylko u w we wczoraj wie wiesz wszystko z za ze że""",
}.items()}
# words with which a message goes on, at its beginning, and those that stand for what was said before
_GOING_ON = {language: words_of(words) for language, words in {
    "en": "and but so or then why",
    "de": "und aber oder dann also warum wieso weshalb",
    "fr": "et mais ou alors pourquoi",
    "es": "y e pero o entonces por",
    "ru": "а и но или тогда почему зачем",
    "it": "e ma o allora poi perché",
    "pt": "e mas ou então porquê",
    "nl": "en maar of dan waarom",
    "pl": "a i ale albo to dlaczego",
}.items()}
_LANGUAGES: dict[str, list[str]] = {}  # by plain word
for _language, _words in _PLAIN.items():
    for _word in _words:
        _LANGUAGES.setdefault(_word, []).append(_language)
_POINTING = {language: words_of(words) for language, words in {
    "en": "he she it they him her them his hers its their there that those these this one ones other second first third",
    "de": """er sie ihn ihm ihnen ihr ihre ihren ihrem ihrer sein seine seinen seinem seiner dort dorthin dahin da das den dem
        dafür davon damit dazu daran darauf darüber dabei zweite zweiten dritte andere anderen stattdessen""",
    "fr": "il elle ils elles lui leur leurs son sa ses là y en ça cela celui celle autre deuxième second seconde troisième",
    "es": "él ella ellos ellas lo le les su sus allí ahí eso esa ese esto otro otra segundo segunda tercero",
    "ru": """он она оно они его её ее их ему ей им них него нее неё там туда это этого этому этим тот та те второй вторая второе
        вторую другой другая третий""",
    "it": "lui lei loro lo gli le suo sua suoi sue lì là ciò quello quella questo altro altra secondo seconda terzo",
    "pt": "ele ela eles elas o lhe seu sua dele dela lá aí isso essa esse isto outro outra segundo segunda terceiro",
    "nl": "hij zij ze hem haar zijn hun daar dat die deze dit ander andere tweede derde",
    "pl": "on ona oni one jego jej ich jemu tam to tego ten ta drugi druga drugie trzeci inny inna",
}.items()}
_ASKING = words_of("""
    what who whom whose when where which why how was wer wann wo welche welcher welches warum wie qui quand où quel quelle pourquoi
    comment combien qué quién cuándo dónde cuál cómo cuánto кто когда где какой какая какие почему как сколько""")
# fmt: on
_PLAIN_CJK = re.compile(
    r"哈+|呵+|嗯+|啊+|哦+|噢|唉|嘿+|在吗|你好|您好|早上好|早安|晚上好|晚安|早|拜拜|再见|明天见|明天再聊|谢谢|多谢|感谢|谢啦|谢了|辛苦了?|不客气|没事|好的|好吧|好呀|好了?|行|可以|知道了?"
    r"|明白|收到|厉害|太棒了?|真棒|不错|完美|今天|明天|昨天|现在|刚才|刚刚|最近|以前|之前|后来|然后|终于|还是|还有|还|又|再|也|都|就|才|很|太|真的?|非常|特别|有点|一点|一下|一个"
    r"|什么时候|什么|怎么样|怎么|为什么|为啥|哪儿|哪里|哪个|哪位|哪些|哪|谁|几|多少|多大|多久|多长|是不是|有没有|是|不是|有|没有|没|不|能|会|要|想|该|去|来|到|在|跟|和|与|给|对|把|被|从|让|帮我?|请"
    r"|我们|你们|他们|她们|它们|我|你|您|他|她|它|咱们?|自己|大家|这个|那个|这些|那些|这|那|的|地|得|了|着|过|吗|呢|吧|呀|啦|嘛|么|来着|说|告诉|记得|知道|觉得|时候|东西|事情?|里|上|下"
    r"|心情|天气|讲个|帮了?大忙|正是|需要|写得|真是|比"
    r"|元気|気分|調子|天気|こんにちは|こんばんは|おはよう(?:ございます)?|おやすみ(?:なさい)?|ありがとう(?:ございます|ございました)?|ありがと|どうも|すみません|ごめん(?:なさい)?|了解(?:です)?|わかった|わかりました|なるほど|\bはい|うん|いいえ|ううん|えっと|ねえ|あの|その|この|どの|これ|それ|あれ|どれ|ここ|そこ|あそこ|どこ"
    r"|いつ|だれ|誰|なに|なん|何|なぜ|どうして|どう|どんな|いくら|いくつ|今日|明日|昨日|今|最近|前|後|また|まだ|もう|とても|すごく|すごい|ちょっと|少し|本当(?:に)?|やっと|ついに|私|僕|俺|あなた|君|自分|こと|もの|とき|ところ"
    r"|教えて|覚えて(?:る|ます)?|言って(?:た|ました)?|言った|ください|お願い(?:します)?|でしょう|だろう|ました|ません|でした|です|ます|だった|だっけ|だ|った|って|ている|てる|いる|ある|する|した|して|なる|なった|から|まで|より|けど|ので|のに|では|には|とは|は|が|を|に|で|と|も|の|へ|や|か|ね|よ|な|わ|さ|ぞ|笑|まあ|いい|うーん|そっか|サンキュー|ほんと|助かる|ご丁寧に|w+"
    r"|기분|날씨|하루|어땠어요?|보냈어요?|안녕(?:하세요)?|고마워요?|고맙습니다|감사합니다|감사해요?|수고(?:했어|하셨습니다)?|잘자요?|잘 자|네|응|아니요?|그래요?|좋아요?|알았어요?|알겠어요?|알겠습니다|미안(?:해요?)?|ㅋ+|ㅎ+|오늘|내일|어제|지금|아까|요즘|최근|다시|또|아직|이제|드디어|진짜|정말|너무|아주|조금|좀|많이"
    r"|뭐(?:야|라고|였지|예요)?|무엇|무슨|어디(?:서|에|야|였지)?|언제(?:야|였지)?|누구(?:야|였지)?|누가|왜|어떻게|어떤|얼마나?|몇|나는|내가|나의|저는|제가|우리|너는|네가|당신|그는|그녀|그거|이거|저거|그게|이게|그|이|저|것|거|때|수|말해\s*줘|알려\s*줘|기억(?:나|해)?|땡큐|덕분에|살았다|그렇구나|음|왔지롱|얘기하자|기분|했지|했어|했더라|이었지|였지|있어요?|없어요?|해줘|줘"
    r"|ㅋ+|ㅎ+|ㅠ+|ㅜ+"
    r"|สวัสดี|ขอบคุณ|ขอโทษ|ครับ|ค่ะ|อะไร|ที่ไหน|เมื่อไหร่|เมื่อไร|ทำไม|อย่างไร|ยังไง|ใคร|ไหม|เท่าไหร่|เท่าไร|วันนี้|เมื่อวาน|พรุ่งนี้|ตอนนี้|แล้ว|ของ|ดิฉัน|ฉัน|คุณ"
)
_UNSPACED = re.compile(f"[{UNSPACED}]+")
_SIGN = re.compile("[\u3400-\u9fff]")  # a character that may be a word by itself; what is left of Korean is an ending
_GOING_ON_CJK = re.compile(
    r"^(?:那|还有|然后|为什么|为啥|那么|另外)|^(?:じゃあ?|では|それで|それから|で、|なんで|なぜ|どうして|あと|他に)|^(?:그럼|그리고|그런데|근데|왜|그러면|그거|그건|그때)|呢[?？]?$"
)
_POINTING_CJK = re.compile(
    r"[他她它]|那[儿里个]|第[二三]|その|それ|そこ|あの|彼|彼女|二つ目|もう一つ|그(?:거|것|게|건|곳|때|사람|녀|분)|거기|두\s*번째|둘째"
)
_SHORT = (4, 12)  # words of a short question, or characters where words are not separated
_WORD = re.compile(f"[^\\W_]+(?:[{MARKS}]+[^\\W_]*)*")
_MARK = re.compile(r"[?？؟]|[か까][。.]?\s*$|[\u0370-\u03ff];\s*$")
# What is named by its digits or is an address, which matches as a whole: 10.0.0.1, ORD-2024-0815, v1.2, ann@example.com.
# A date is read as a time.
_LETTER, _JOINT = f"[^\\W_{UNSPACED}]", "[.:/@+_-]"
_EXACT = re.compile(
    rf"(?<!{_LETTER})(?<!{_LETTER}{_JOINT})(?={_LETTER}++{_JOINT})(?=[\w.:/@+-]{{0,63}}[\d@])"
    r"(?!(?:19|20)\d\d[./-]\d|\d\d?[./-]\d\d?[./-](?:19|20)\d\d(?!\w))"
    rf"{_LETTER}++(?:{_JOINT}{{1,2}}{_LETTER}++)++"
)
_INSIDE = re.compile(rf"{_JOINT}(?<=\w{_JOINT}){_JOINT}?\w")  # what each has: it is found 20 times as fast
_LONGEST_EXACT = 64  # characters; a longer one is mostly data
_JOINTS = str.maketrans({joint: "_" * (at + 1) for at, joint in enumerate(".-/:+")} | {"@": "_at_"})
_DIGIT = re.compile(r"[\d@]")
_STEM, _ENDING = 4, 3  # letters of the shortest beginning by which words are compared, and by which one may be longer
_FEW = 2  # words that tell something, of a message that goes on with the turn before


def language_of(words: Iterable[str]) -> str | None:
    """Return the language of which a text has the most plain words; None if it has none."""
    counts = dict.fromkeys(_PLAIN, 0)
    for word in {*words}:
        for language in _LANGUAGES.get(word, ()):
            counts[language] += 1
    best = max(counts, key=counts.__getitem__)
    return best if counts[best] else None


@lru_cache(64)
def read_words(text: str) -> tuple[Sequence[str], str | None]:
    """Return the words of a text in lower case, and its language."""
    words = _WORD.findall(text.lower())
    return words, language_of(words)


def as_searched(text: str) -> str:
    """Return a text with its words as they are searched: where none are separated, each two characters in a row are one.

    Search divides at spaces and signs. So of Chinese, Japanese, Korean and Thai a sentence would be a word, and hardly ever
    asked for; and of an IP address or an order number only the digits would be left, so it follows in one word.
    """
    text = text if text.isascii() else folded(text)
    if _INSIDE.search(text):
        text = _EXACT.sub(_joined, text)
    return text if text.isascii() else _UNSPACED.sub(_pairs, text)


def _joined(found: re.Match[str]) -> str:
    return found[0] if len(found[0]) > _LONGEST_EXACT else f"{found[0]} {found[0].translate(_JOINTS)}"


def _named(found: re.Match[str]) -> str:
    """Return the words beside the numbers of an order number or the like; none of an address."""
    return " " if "@" in found[0] else " ".join(part for part in _WORD.findall(found[0]) if part.isalpha())


def _pairs(found: re.Match[str]) -> str:
    run = found[0]
    return f" {' '.join(map(add, run, run[1:])) or run} "


@lru_cache(64)  # a turn asks several times
def telling_words(text: str) -> tuple[str, ...]:
    """Return the distinct words of a text that tell something, in lower case; of Chinese, Japanese and Korean the rest of it."""
    words, language = read_words(text)
    if _INSIDE.search(text) and (exact := _EXACT.findall(text)):
        words = [*map(str.lower, exact), *_WORD.findall(_EXACT.sub(_named, text).lower())]
    plain = _PLAIN.get(language or "", frozenset())
    found: list[str] = []
    for word in dict.fromkeys(words):
        if not word.isascii() and _UNSPACED.search(word):
            found += [part for part in _UNSPACED.findall(_PLAIN_CJK.sub(" ", word)) if len(part) > 1]
        elif word not in plain and (len(word) > 1 or not word.isascii()):
            found.append(word)
    if not found and not text.isascii() and is_question(text):
        # "where do I live?" is 我住在哪里: one character is what is asked for
        return tuple(dict.fromkeys(_SIGN.findall(_PLAIN_CJK.sub(" ", text))))
    return tuple(found)


def has_mark(text: str) -> bool:
    """Tell whether a text has a question mark, or ends like a question; a turn asks often, and an expression alone takes 3 us."""
    return "?" in text or (not text.isascii() and bool(_MARK.search(text)))


def is_question(text: str) -> bool:
    """Tell whether a message asks something: by its mark, or by the word with which it begins."""
    words, _ = read_words(text)
    return has_mark(text) or (bool(words) and words[0] in _ASKING)


def count_shared(words: Iterable[str], text: str) -> float:
    """Count how many of a question's words a text has, whatever their endings; of Chinese and the like, by pairs of characters."""
    text, found, said = text.lower() if text.isascii() else folded(text), 0.0, ""
    for one in words:
        word = one if one.isascii() else folded(one)
        if not word.isascii() and _UNSPACED.search(word):
            pairs = [word[at : at + 2] for at in range(len(word) - 1)] or [word]
            found += sum(pair in text for pair in pairs) / len(pairs)
            continue
        is_exact = _DIGIT.search(word)  # a number has no endings
        stem = word if is_exact or len(word) <= _STEM else word[: max(_STEM, len(word) - 2)]
        if stem in text:  # mostly it is not, and then nothing else is looked at
            said = said or "\n".join(
                ["", *_WORD.findall(text if text.isascii() else _UNSPACED.sub(" ", text)), *_EXACT.findall(text), ""]
            )
            longest = len(word) + (0 if is_exact else _ENDING)
            at = said.find(f"\n{stem}")
            while at >= 0 and said.find("\n", at + 1) - at - 1 > longest:
                at = said.find(f"\n{stem}", at + 1)
            found += at >= 0
    return found


def goes_on(text: str) -> bool:
    """Tell whether a message cannot be understood without the turn before: "And who is his doctor?", "why?"."""
    words, language = read_words(text)
    telling = telling_words(text)
    if not words or len(telling) > _FEW:
        return False
    stripped = text.strip()
    is_unspaced = not text.isascii() and bool(_UNSPACED.search(text))
    if (
        len(telling) <= 1
        and (len(stripped) if is_unspaced else len(words)) <= _SHORT[is_unspaced]
        and is_question(text)
    ):
        return True  # "which floor?"; a question that stands alone loses little beside the turn before
    if is_unspaced:
        return bool(_GOING_ON_CJK.search(stripped) or _POINTING_CJK.search(stripped)) or not telling
    if language is None:
        return False
    if words[0] in _GOING_ON[language]:
        return True
    return "?" in text and (not telling or not _POINTING[language].isdisjoint(words))
