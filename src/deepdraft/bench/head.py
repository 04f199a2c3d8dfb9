"""The unique beginning of a prompt: words that no other prompt of the run begins with.

A prefix cache keys what it holds by the tokens from the first one on. Text that differs at the end (or in the middle)
leaves everything before it to be found again; text that differs in its first token leaves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from random import Random

HEAD_LEN = 8
"""Words in a head. Drawn from 500 words they hold 70 bits: heads of different runs don't meet either."""

# One token each in the tokenizers looked at (byte-level BPE with 49k and 131k tokens, SentencePiece with 32k), with
# a space before them and without one, so that a head costs the same wherever it stands. Whether that holds on the
# server at hand is measured, not assumed.
_HEAD_WORDS = """
bridge river market station letter table window door wall road field town ship boat train car wheel engine
machine tool picture story page map chart plan report record list note message sign signal bell clock key
lock box bag cup chair bed floor room castle library shop store mill mine bank court camp path track gate
bench stone rock hill stream cloud storm star writer reader driver player worker member friend mother
father student guard child family team company project question answer idea method model system program
network pipe filter sensor frame panel switch button screen camera radio phone number figure symbol word
language test game match coin price tax law rule contract memory border port square park yard tree branch
leaf root seed bread hat ring chain net flag tables windows doors fields ships tools lights books pages
maps records notes messages keys boxes rooms paths members children people projects methods models words
rules found closed built left covered shared saved changed checked protected sent held finished owned used
fixed expected ordered named called supported filled locked signed rose failed stood sat large dark gray
empty full wide deep round flat soft hard rough simple complex common hidden open public private local
rich strong weak kind patient late remote western iron safe possible clean plain special single double
final second third previous tiny bad alone away once around without into six ten until act add age ago aim
any area arm art base bar bit body boot break build cap case cell center change check class clear click
client clone color column comment compare content context copy core count create cross cur cut data date
default delete depth detail device document domain done draw drive drop edge edit end entity entry error
event export extra face factor fail false feature file fix float flow focus font force form format free
front global grid group half handle head header height hide history hold hook host hot hour icon image
import include index inner input insert install item join label layer layout length level limit line link
load loop main mark mask max menu merge meta mid min mode mouse multi must native node none normal object
option order own pack pair parent parse part pass pay peer pick place plugin point pool post power pre
press print product profile pull push query queue quick raise random range rate raw read ready real
redirect ref region release repeat reply request reset resource response rest result return right role row
sample save scale scan scene scope score script scroll search section select self send sequence series
service session set shape share shell shift side site size skip sleep slot sort source space span split
stack stage static status step string style sub submit success sum super support swap sync tag target task
term text thread title token top total touch transform trim true type union unit update upload upper user
valid value vector version video view wait walk warn watch way web week width wire wrap write zero zone
moment heart hand sea sun
"""

# Words for the first place of texts that are no prompts to be measured. None of them is one of the above in another
# case, so that no such text begins like a prompt.
_STARTERS = """
The And But When If For In On At This That It He She We You They There Here Now Then What Who How Why
Where One Two All Some Most Many Each Every First Last Next After Before Since While With From Over Under
Like Just Only Even Also Still Again Never Always Not No Yes So Or As By To Of Up Out My Your His Her Its
Our Their These Those Such More Other New Old Good Great High Low Long Short Big Small Man Men Day Time
Year Home House World State City School Book Work Life Water Air Fire Light King Black White Red Blue
Green Three Four Five North South East West Both Through Between During About Because Although Back Down
Off Well May Can Will Is Are Was Be Have Has Had Do Does Did Make Made Take See Say Get Go Come Know Think
Look Want Give Use Find Tell Ask Call Try Need Leave Put Mean Keep Let Begin Help Talk Turn Start Show
Play Run Move Live
"""

HEAD_WORDS = tuple(_HEAD_WORDS.split())
STARTERS = tuple(_STARTERS.split()[24:])
"""For texts that measure words."""
SHORT_STARTERS = tuple(_STARTERS.split()[:24])
"""For texts that only ask whether a server is alive."""


def distinct_heads(
    first_words: Sequence[str], words: Sequence[str], seed: int, num_words: int = HEAD_LEN
) -> Iterator[str]:
    """Heads without end, no two with the same first word as long as there are unused ones.

    After that no two share their first two words, for len(first_words) * len(words) heads; the words from the third
    on are random. The order follows from the seed.
    Raises ValueError without words, or for heads of less than two words.
    """
    if not first_words or not words or num_words < 2:
        raise ValueError("a head needs words to draw from, and at least two of them")
    rng = Random(f"heads {seed}")
    firsts = rng.sample(first_words, len(first_words))
    seconds = rng.sample(words, len(words))
    for round_index in count():
        for index, first in enumerate(firsts):
            # Each round shifts the second words by one place: a first word meets every second word once.
            second = seconds[(index + round_index) % len(seconds)]
            yield " ".join((first, second, *rng.choices(words, k=num_words - 2)))
