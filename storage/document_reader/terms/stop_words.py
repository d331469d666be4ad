"""Stop words: words that are left out of queries, by primary language tag."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from storage.document_reader.terms.tokenizer import stems

STOP_WORDS: Final[Mapping[str, str]] = {
    "en": """
a about all also am an and any are as at be been but by can could d did do does don for from get got had has have he
hello her hey hi his how i if in into is it its just like ll m may me might much my no not of oh okay on or our
please re s she should so some sure t tell than that the their them there these they this those to uh um us ve very
want was we well were what when where which who whom whose why will with would yeah yes you your
""",
    "de": """
ab aber alle als also am an auch auf aus bei bin bis bist bitte da dann das dass dein deine dem den denn der des
dich die dies diese diesem diesen dieser dieses dir doch du ein eine einem einen einer eines er es etwas euch euer
für gibt habe haben hallo hast hat hatte hätte hier ich ihm ihn ihnen ihr ihre im in ins ist ja kann kannst kein
keine können könnte könnten man mein meine meinem meinen meiner mich mir mit möchte möchten muss nach nein nicht
noch nun nur ob oder ohne sagen schon sein seine sich sie sind so soll über um und uns unser unsere vom von vor war
warum was welche welchem welchen welcher welches wenn wer werden wann habt wie will wir wird wo würde würden zu zum
zur
""",
    "es": """
a al algo algún alguna ante aquí así aunque bien bueno cada como cómo con cual cuál cuáles cuando cuándo cuánto
cuánta de del desde donde dónde el él ella ellas ellos en entre era es esa ese eso esta está están este esto favor
fue gracias ha hacer hago han has hasta hay he hola la las le les lo los me mi mis mucho muy más ni no nos nuestra
nuestro o os para pero por porque puede pueden puedo que qué quién quiero se sea ser si sí sin sobre son soy su sus
también te tener tengo ti tiene tienen tu tus un una uno usted ustedes y ya yo
""",
    "fr": """
a ai ainsi alors après as au aucun aussi aux avant avec avez avoir bien bonjour c ce cela celle celui ces cet cette
chez ci comme comment d dans de des deux dois doit donc du elle elles en est et étaient était êtes être eu eux faire
fait faut il ils j je l la là le les leur leurs lui ma mais me merci mes moi mon même n ne ni non nos notre nous on
ont ou où oui par pas peu peut peuvent peux plaît plus pour pourquoi pouvez puis qu quand que quel quelle quelles
quels qui quoi s sa sans se sera ses si sont souhaite son sous suis sur t ta te tes toi ton tous tout toute toutes
très tu un une va vais veux voudrais vos votre vous y
""",
    "it": """
a ad ai al alla alle allo anche avere c che chi ci ciao come con cosa cui da dal dalla dei del della delle di dove e
ed è era essere fa gli grazie ha hai hanno ho i il in io l la le lei li lo loro ma mi mia mio molto ne nei nel nella
no noi non nostra nostro o per perché però più posso può qual quale quali quando quanto quella quello questa questo
se si sì sono su sua sui sul sulla suo ti tra tu un una uno vi voglio voi vorrei vostra vostro
""",
    "nl": """
aan al alle als bent bij dan dat de deze die dit doe door een en er graag hallo heb hebben heeft het hier hij hoe ik
in is ja je jij jullie kan kunnen kunt maar me met mij mijn moet na naar nee niet nog nu of om ons onze ook op over
te tot u uit uw van veel voor waar wanneer want waarom was wat we wel welke wie wij wil worden wordt zal ze zich zij
zijn zo zou
""",
    "pt": """
a à ao aos as às até bem com como da das de dela dele do dos e é ela elas ele eles em entre era essa esse esta está
este eu favor foi há isso isto já lhe mais mas me mesmo meu meus minha muito na não nas nem no nos nós nossa nosso o
obrigado olá onde os ou para pela pelo pode podem por porque posso qual quais quando quanto que quem quero se sem
ser seu seus sim só sua suas também te tem tenho ter um uma você vocês
""",
}


@cache
def stop_terms(language: str) -> frozenset[str]:
    """Returns the terms of a language's stop words; none for a language without a list."""
    return frozenset(stems(word, language)[0] for word in STOP_WORDS.get(language, "").split())
