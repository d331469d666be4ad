"""Sentences by which a caller who is being transferred goes back to the agent, by language."""

from __future__ import annotations

from typing import Final

from models.text.sentence_requests import SentenceRequests

_AROUND: Final = {
    "en": r"okay|ok|oh|ah|um|uh|well|actually|sorry|no|hey|hello|wait|please|then|now|just|so|and|anyway|you know what|"
    r"i think|thanks|thank you|(?:can|could|will|would) you|"
    r"i(?:'ll| will) (?:call|try|ring) (?:you )?(?:back|again)(?: later| tomorrow)?|"
    r"it'?s (?:fine|okay|all right|not (?:so |that )?important)",
    "de": r"okay|ok|ach|ähm|äh|nein|nee|also|bitte|dann|jetzt|danke|vielen dank|entschuldigung|sorry|moment|halt|"
    r"warten sie|einfach|lieber|mal|schon gut|(?:können|könnten|würden) sie|kannst du|"
    r"ich (?:rufe|melde mich) (?:später|morgen|nochmal)(?: (?:wieder|nochmal|noch mal))?(?: an)?",
    "fr": r"okay|ok|bon|bien|ah|euh|non|alors|finalement|en fait|s'il (?:vous|te) plaît|merci|maintenant|attendez|"
    r"pardon|désolée?|excusez-moi|(?:pouvez|pourriez)-vous|c'est bon|ce n'est pas grave|"
    r"je (?:rappellerai|rappelle)(?: (?:plus tard|demain))?",
    "es": r"okay|ok|vale|bueno|ah|pues|mejor|entonces|ahora|ya|por favor|gracias|perdone?|perdón|disculpe|espere|mire|"
    r"en realidad|(?:puede|podría)|(?:llamaré|llamo) (?:más tarde|luego|después|mañana)",
    "it": r"okay|ok|allora|ah|no|beh|senta|mi scusi|scusi|grazie|per favore|adesso|ora|anzi|aspetti|"
    r"(?:può|potrebbe)|(?:richiamo|richiamerò) (?:più tardi|dopo|domani)",
    "pt": r"okay|ok|bom|bem|ah|então|olhe|agora|já|por favor|obrigad[oa]|desculpe|espere|afinal|(?:pode|poderia)|"
    r"(?:ligo|volto a ligar) (?:mais tarde|depois|amanhã)",
    "nl": r"oké|oke|okay|ok|nou|ach|nee|toch|dan|nu|alstublieft|alsjeblieft|graag|bedankt|dank u(?: wel)?|sorry|even|"
    r"wacht(?: even)?|eigenlijk|(?:kunt|kan) u|kun je|ik bel (?:later|straks|morgen)(?: wel)?(?: terug)?",
    "pl": r"okay|ok|dobrze|no|ach|a|już|proszę|dziękuję|przepraszam|teraz|to|w takim razie|chwileczkę|"
    r"zadzwonię (?:później|potem|jutro)",
    "sv": r"okay|ok|nej|jo|ja|ah|äh|men|då|nu|tack|snälla|förlåt|ursäkta|vänta|bara|kan (?:du|ni)|"
    r"jag ringer (?:tillbaka )?(?:senare|igen|imorgon)",
}
"""Words that may stand around the request. Where "no" is also "not" (Spanish, Portuguese, Polish), it is none of
them."""
_REQUESTS: Final = {
    "en": r"never ?mind(?: (?:that|it))?|forget (?:it|that|about (?:it|that))|leave it|don'?t bother|"
    r"(?:cancel|stop)(?: (?:it|that|this|(?:the|this|my) transfer))?|stop transferring(?: me)?|"
    r"i(?:'?d| would) like to cancel (?:the|this|my) transfer|i want to cancel (?:the|this|my) transfer|"
    r"(?:take me |bring me |put me |let me |i want to |i(?:'?d| would) like to )?go back(?: to (?:you|the (?:agent|"
    r"assistant|robot|bot)))?|(?:take|bring|put) me back(?: to (?:you|the (?:agent|assistant|robot|bot)))?|"
    r"(?:don'?t|do not) (?:transfer|connect)(?: me)?(?: any ?more)?|(?:don'?t|do not) put me through|"
    r"i (?:don'?t|do not|no longer) (?:want|need) (?:(?:the|a|this) transfer|to be (?:transferred|connected|put "
    r"through)|to (?:talk|speak) to (?:them|him|her|anyone|anybody|a person))(?: any ?more)?|"
    r"(?:it'?s |that'?s )?no longer (?:needed|necessary)|"
    r"i(?:'?ll| will| would rather|'?d rather) stay(?: (?:here|with you|with the (?:agent|assistant|robot|bot)))?|"
    r"i(?:'?ve| have)? changed my mind",
    "de": r"(?:vergessen sie|vergiss)(?: es| das|'s)|(?:lassen sie|lass)(?: es| das|'s)(?: (?:gut sein|sein|bleiben))?|"
    r"stopp?|(?:(?:das|es) )?(?:ist )?nicht mehr nötig|"
    r"(?:lieber |jetzt )?doch nicht(?! abbrechen)|"
    r"(?:(?:das|es|die (?:weiterleitung|vermittlung|verbindung)) )?abbrechen|"
    r"brechen sie (?:(?:das|es|die (?:weiterleitung|vermittlung|verbindung)) )?ab|"
    r"(?:mich )?(?:bitte )?(?:doch )?nicht (?:mehr )?(?:verbinden|weiterverbinden|weiterleiten|durchstellen)|"
    r"(?:verbinden|leiten|stellen) sie mich (?:bitte )?(?:doch )?nicht(?: (?:weiter|durch))?|"
    r"(?:ich )?(?:möchte|will) (?:doch )?nicht (?:mehr )?(?:verbunden|weiterverbunden|weitergeleitet|durchgestellt) "
    r"werden|"
    r"(?:(?:das|es|meine frage|mein anliegen|das problem) )?hat sich (?:schon |damit |inzwischen )?erledigt|"
    r"ich bleibe (?:doch )?(?:lieber )?(?:bei ihnen|bei dir|hier)|ich habe? es mir anders überlegt",
    "fr": r"laisse[zr]? tomber|laissez|annule[zr]?(?: (?:ça|cela|tout|le transfert))?|oublie[zr]?(?: (?:ça|cela))?|"
    r"tant pis|(?:ne )?me transférez (?:pas|plus)|ne (?:me )?(?:transférez|passez|connectez) (?:pas|plus)|"
    r"ne transférez (?:pas|plus) (?:l'|mon )appel|j'ai changé d'avis|"
    r"je (?:reste|préfère rester) (?:ici|avec vous)|(?:ce n'est |c'est )?(?:pas|plus) la peine|"
    r"(?:il n'y a )?plus besoin|je n'en ai plus besoin",
    "es": r"(?:no )?(?:olv[ií]del[oa]|olv[ií]dalo|d[eé]j(?:el[oa]|alo)|canc[eé]lel[oa])(?: (?:estar|así))?|"
    r"cancel(?:e|a|ar|arlo)(?: (?:eso|esto|la transferencia))?|(?:ya )?no importa|"
    r"no me (?:transfiera|pase|conecte|comunique)|no quiero que me (?:transfiera|pase|conecte)|"
    r"(?:ya )?no (?:hace falta|es necesario)|(?:he cambiado|cambié) de (?:idea|opinión)|"
    r"(?:me quedo|prefiero quedarme|prefiero seguir) con usted",
    "it": r"lasci(?:a|amo)? (?:pure )?(?:stare|perdere)|annull(?:a|i|are|iamo)(?: (?:tutto|il trasferimento))?|"
    r"lasciar (?:stare|perdere)|non importa|(?:non )?fa niente|(?:se )?lo dimentichi|"
    r"non mi (?:trasferisca|passi|colleghi)(?: (?:nessuno|più))?|ho cambiato idea|"
    r"(?:resto|rimango|preferisco restare|preferisco rimanere) con lei|non (?:serve|occorre) più",
    "pt": r"deix[ea] (?:estar|lá|para lá|pra lá|isso)|esque[çc][ae](?: isso)?|"
    r"cancel(?:e|a|ar)(?: (?:isso|tudo|a transferência))?|não importa|"
    r"não me (?:transfira|transfere|passe|ligue)|não transfira|(?:já )?não é (?:mais )?(?:preciso|necessário)|"
    r"mudei de ideia|(?:eu )?(?:fico|prefiro ficar|prefiro continuar) (?:com você|consigo)",
    "nl": r"laat (?:het )?maar(?: (?:zitten|gaan|zo))?|vergeet (?:het|dat)(?: maar)?|doe maar niet|"
    r"(?:(?:het|dit|dat|de doorverbinding) )?annuleren|annuleer(?: (?:het|dit|dat|de doorverbinding))?(?: maar)?|"
    r"(?:mij |me )?niet (?:meer )?doorverbinden|verbind(?:t u)? (?:mij|me) (?:maar )?niet(?: meer)? door|"
    r"(?:het |dat )?hoeft (?:al )?niet meer|(?:het |dat )?is niet meer nodig|"
    r"ik (?:heb me bedacht|heb mij bedacht|ben van gedachten veranderd)|ik blijf (?:liever )?(?:bij u|hier)",
    "pl": r"(?:nie )?nieważne|nie trzeba|jednak nie(?! anul)|anuluj(?: (?:to|przekierowanie|połączenie))?|"
    r"anulować(?: (?:to|przekierowanie))?|(?:mnie )?nie (?:łączyć|przełączać)(?: mnie)?|nie łącz(?: mnie)?|"
    r"zapomnij(?: o tym)?|zapomnieć(?: o tym)?|zmienił[ea]m zdanie|(?:zostaję|wolę zostać) (?:z panem|z panią|tutaj)",
    "sv": r"glöm (?:det|bort det)(?: här| där)?|strunta? i det|strunt samma|det (?:kvittar|behövs inte)|"
    r"avbryta?(?: (?:det|det här|kopplingen|överföringen))?|"
    r"(?:du behöver |ni behöver )?inte koppla(?: mig)?(?: vidare| fram)?|"
    r"koppla (?:mig inte|inte mig|inte)(?: vidare| fram)?|jag har ändrat mig|"
    r"jag stannar (?:hellre )?(?:kvar )?(?:hos dig|här)",
}
_CANCEL: Final = SentenceRequests(_REQUESTS, _AROUND)


def cancels_transfer(text: str, language: str | None) -> bool:
    """Returns True if a sentence of these words of the caller is nothing but the wish to stay ("no, never mind"): one
    that only contains such words, as "I want to cancel my contract", is kept for the agent. `language` is a BCP 47 tag;
    a language without rules has those of English."""
    return _CANCEL.are_in(text, language)
