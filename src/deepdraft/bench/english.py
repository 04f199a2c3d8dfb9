"""A small English: common words and sentence patterns, enough to write prose that nobody has read before.

The prose is grammatical and means nothing. It never runs out, does not repeat itself, and every word of it is
known in advance, so that a caller who knows what each word costs knows what a text costs. Any choice of the
words will do as long as it is rich enough, which lets a caller keep to the words that cost one token each.

It leaves out digits, quotation marks and rare words: tokenizers differ most there.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from random import Random

# Each class holds words that fit the same places. The words are common, because common words tend to be one
# token, and none of them is a word that a needle hides.
_NOUNS = """
bridge river garden market station letter table window door wall road street field forest mountain valley village
city town island ship boat train car wheel engine machine tool lamp mirror picture painting song story poem
book page map chart plan report record list note message sign signal bell clock key lock box bag basket bottle cup
plate bowl knife chair bed desk shelf roof floor room kitchen tower castle temple school library museum theater
hospital hotel office shop store farm mill mine bank court church prison camp path track trail gate fence corner
bench stone rock hill cave lake stream beach coast cloud storm star moon planet teacher doctor farmer soldier
painter singer writer reader driver player worker leader member partner neighbor friend brother sister mother
father uncle guest stranger merchant lawyer judge officer captain pilot student cook guard king
queen prince nurse visitor engineer scientist child crowd army family team committee company council project
problem question answer idea theory method model system program machine network circuit battery cable pipe 
pump filter sensor motor frame panel switch button screen camera radio phone number figure symbol word sentence
language lesson test game match race prize gift coin debt price tax law rule contract promise dream
memory habit mistake journey voyage flight border tunnel canal port dock square park yard barn tree
branch leaf root seed flower fruit grain bread meal soup cheese coat hat shirt dress ring chain rope net flag
sword shield helmet statue crown throne
"""
_PLURALS = """
rivers gardens letters tables windows doors walls roads streets fields mountains islands ships boats
trains cars wheels engines machines tools lights pictures songs stories books pages maps plans reports records
notes messages signs signals keys boxes bags bottles cups plates chairs rooms schools hotels shops stores
farms banks camps paths tracks gates stones rocks hills clouds stars teachers doctors farmers soldiers writers
readers drivers players workers leaders members partners neighbors friends brothers sisters guests judges officers
students guards children people men women animals birds horses families teams companies projects problems
questions answers ideas methods models systems programs numbers figures words rules games gifts coins dreams
mistakes trees branches leaves roots seeds flowers
"""
_TRANSITIVE = """
found carried opened closed watched followed painted built moved lifted noticed described remembered forgot
ignored crossed reached entered left visited studied measured counted collected cleaned covered removed replaced
shared returned sold bought offered accepted refused feared loved hated needed wanted kept lost saved saw
heard touched changed tested checked marked mentioned discussed praised protected hid showed sent brought
took held drew chose missed avoided examined improved destroyed designed finished started planned owned used tried
pushed pulled turned broke fixed washed recorded reported recognized discovered understood expected trusted valued
prepared presented served passed faced joined ordered copied named called approached surrounded explored 
attacked supported raised filled locked signed printed traded welcomed
"""
_INTRANSITIVE = """
waited slept laughed smiled walked ran rested fell rose moved stopped stayed worked failed changed vanished
appeared arrived returned spoke sang stood sat cried shouted whispered grew turned burned broke survived
suffered listened hesitated agreed argued continued remained disappeared traveled improved struggled
succeeded
"""
_ADJECTIVES = """
old new small large quiet loud bright dark heavy light cold warm dry wet green blue red white black gray yellow
brown golden silver broken empty full narrow wide deep tall short long thin thick round flat sharp soft hard rough
smooth strange familiar simple complex common rare famous hidden open closed public private local foreign ancient
modern young poor rich strong weak happy sad angry calm gentle kind cruel honest clever proud brave careful
patient busy lazy tired hungry lonely friendly formal early late recent distant remote central northern southern
eastern western wooden iron useful dangerous safe certain uncertain possible perfect serious curious nervous
pleasant terrible beautiful ugly lovely clean dirty fresh plain fancy cheap expensive precious ordinary special
single double final last next second third previous tiny huge enormous fine great little good bad better
"""
_ADVERBS = """
slowly quickly quietly carefully suddenly often early late again together alone away outside inside nearby soon
twice gently softly clearly easily badly well deeply freely silently openly firmly later today yesterday forever
everywhere once directly
"""
_PREPOSITIONS = """
near behind beside under above across beyond inside outside around against before after without with from into
toward through past along over
"""
_NAMES = """
Anna Peter Maria James John Mary Thomas Robert Alice Henry Clara David Sarah Daniel Laura Martin Helen George Emma
Paul Julia Simon Grace Victor Rose Frank Diana Oscar Linda Arthur Ruth Jack Nina Leo Eva Max Lucy Adam Kate Ben
Carl Jane Tom Sam Hugo 
"""
_NUMBERS = "two three four five six seven eight nine ten twelve twenty thirty forty fifty several many some few"
_DETERMINERS = "the this that every another one each his her their our my"
_OPENERS = "The This That Every Another One Each His Her Their Our My"
_COUNTS = "Two Three Four Five Six Seven Several Many Some Most"
_SUBORDINATORS = "When While Before After Although Because If Once Until Since"
_TIMES = "Later Then Soon Today Meanwhile Sometimes Often Finally Again Now Perhaps"
_PEOPLE = "Nobody Everyone He She They We You"
_ANYONE = "Nobody Everyone"
_PRONOUNS = "he she they we you nobody everyone somebody"
_LINKS = "and but so while because until before after although when"
_THINKING = "thought believed knew said wrote heard felt hoped guessed agreed learned explained"
_BEING = "seemed became looked felt remained sounded appeared"
_HOW = "how why where when that"

# A pattern is a row of classes; a comma or a full stop stands on its own and takes no space before it.
# Any eight neighbouring words cross at least four wide classes, which is what keeps the prose from repeating.
_PATTERNS = """
OPENER ADJECTIVE NOUN TRANSITIVE DETERMINER ADJECTIVE NOUN PREPOSITION DETERMINER NOUN .
OPENER NOUN TRANSITIVE NUMBER ADJECTIVE PLURAL , LINK DETERMINER ADJECTIVE NOUN INTRANSITIVE ADVERB .
SUBORDINATOR DETERMINER ADJECTIVE NOUN INTRANSITIVE , NAME TRANSITIVE DETERMINER NOUN PREPOSITION DETERMINER NOUN .
NAME LINKAND NAME TRANSITIVE NUMBER PLURAL PREPOSITION DETERMINER ADJECTIVE NOUN .
TIME , DETERMINER NOUN PREPOSITION DETERMINER ADJECTIVE NOUN INTRANSITIVE ADVERB LINK NAME INTRANSITIVE .
NAME THINKING HOW DETERMINER ADJECTIVE NOUN TRANSITIVE DETERMINER NOUN , LINK PRONOUN TRANSITIVE NUMBER PLURAL .
COUNT ADJECTIVE PLURAL INTRANSITIVE PREPOSITION DETERMINER NOUN LINKAND TRANSITIVE DETERMINER ADJECTIVE NOUN .
OPENER NOUN BEING ADJECTIVE , LINK DETERMINER ADJECTIVE NOUN TRANSITIVE DETERMINER NOUN ADVERB .
ANYONE PREPOSITION DETERMINER ADJECTIVE NOUN THINKING HOW DETERMINER NOUN TRANSITIVE NUMBER ADJECTIVE PLURAL .
TIME NAME TRANSITIVE DETERMINER ADJECTIVE NOUN , DETERMINER NOUN LINKAND NUMBER PLURAL PREPOSITION DETERMINER NOUN .
OPENER ADJECTIVE , ADJECTIVE NOUN INTRANSITIVE ADVERB , LINK NAME TRANSITIVE DETERMINER NOUN .
PERSON TRANSITIVE DETERMINER NOUN PREPOSITION NAME , LINK NUMBER PLURAL INTRANSITIVE PREPOSITION DETERMINER NOUN .
COUNT PLURAL LINKAND DETERMINER ADJECTIVE NOUN BEING ADJECTIVE , LINK NAME INTRANSITIVE .
NAME INTRANSITIVE ADVERB PREPOSITION DETERMINER NOUN , TRANSITIVE DETERMINER ADJECTIVE NOUN LINKAND INTRANSITIVE .
"""
_CLASSES = {
    "NOUN": _NOUNS,
    "PLURAL": _PLURALS,
    "TRANSITIVE": _TRANSITIVE,
    "INTRANSITIVE": _INTRANSITIVE,
    "ADJECTIVE": _ADJECTIVES,
    "ADVERB": _ADVERBS,
    "PREPOSITION": _PREPOSITIONS,
    "NAME": _NAMES,
    "NUMBER": _NUMBERS,
    "DETERMINER": _DETERMINERS,
    "OPENER": _OPENERS,
    "COUNT": _COUNTS,
    "SUBORDINATOR": _SUBORDINATORS,
    "TIME": _TIMES,
    "PERSON": _PEOPLE,
    "ANYONE": _ANYONE,
    "PRONOUN": _PRONOUNS,
    "LINK": _LINKS,
    "LINKAND": "and",
    "THINKING": _THINKING,
    "BEING": _BEING,
    "HOW": _HOW,
}
_WORDS = {name: tuple(dict.fromkeys(words.split())) for name, words in _CLASSES.items()}

# A class may lose words to a caller's choice, down to these sizes; below them a pattern is dropped, since what
# it writes would soon repeat itself. Any class not named here needs one word.
_SMALLEST = {
    "NOUN": 80,
    "PLURAL": 30,
    "TRANSITIVE": 40,
    "INTRANSITIVE": 15,
    "ADJECTIVE": 50,
    "ADVERB": 10,
    "PREPOSITION": 8,
    "NAME": 10,
    "DETERMINER": 4,
    "OPENER": 4,
}
_FEWEST_PATTERNS = 5


def vocabulary() -> tuple[str, ...]:
    """Every word that the sentences can hold, as it is written there, each once."""
    return tuple(dict.fromkeys(word for words in _WORDS.values() for word in words))


def plain_words() -> tuple[str, ...]:
    """The words of the vocabulary that are all lower case and have three letters or more, each once."""
    return tuple(word for word in vocabulary() if word.islower() and len(word) >= 3)


class Grammar:
    """The sentence patterns, filled from the whole vocabulary or from a choice of it."""

    def __init__(self, words: Container[str] | None = None) -> None:
        """`words` is the choice to keep to; None takes the whole vocabulary."""
        kept = {
            name: tuple(word for word in members if words is None or word in words)
            for name, members in _WORDS.items()
        }
        usable = {name for name, members in kept.items() if len(members) >= _SMALLEST.get(name, 1)}
        rows = [row.split() for row in _PATTERNS.strip().splitlines()]
        self._patterns = tuple(
            tuple(_slot(name, kept) for name in row)
            for row in rows
            if all(name in usable or name in ",." for name in row)
        )

    @property
    def is_rich(self) -> bool:
        """Enough words and patterns are left for prose that does not repeat itself."""
        return len(self._patterns) >= _FEWEST_PATTERNS

    def sentences(self, seed: int) -> Iterator[str]:
        """Write sentences without end, each with a space before every word, the first one included.

        Raises ValueError when the words chosen are too few (see `is_rich`).
        """
        if not self.is_rich:
            raise ValueError("too few words are left to write prose")
        draw = Random(seed).random
        patterns, num_patterns = self._patterns, len(self._patterns)
        while True:
            pattern = patterns[int(draw() * num_patterns)]
            # int(draw() * size) is several times quicker than Random.choice, and a prompt takes 200,000 of them.
            yield "".join([words[int(draw() * size)] for words, size in pattern])


def _slot(name: str, kept: dict[str, tuple[str, ...]]) -> tuple[tuple[str, ...], int]:
    words = (name,) if name in ",." else tuple(f" {word}" for word in kept[name])
    return words, len(words)
