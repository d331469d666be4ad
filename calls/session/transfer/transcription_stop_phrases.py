"""Sentences by which a connected party tells the agent to stop the transcription, by language."""

from __future__ import annotations

from typing import Final

from models.text.sentence_requests import SentenceRequests

_OPTIONAL: Final = {
    "en": r"okay|ok|hey|hello|so|and|then|now|please|kindly|(?:can|could|will|would) you|just|"
    r"(?:the )?(?:agent|assistant|robot|bot)|thanks|thank you|right|at once",
    "de": r"okay|ok|hallo|so|und|dann|jetzt|bitte|mal|sofort|(?:der |die )?(?:agent|assistent|assistentin|roboter)|"
    r"danke|können sie|kannst du",
    "fr": r"okay|ok|bon|allô|et|alors|maintenant|s'il (?:vous|te) plaît|(?:l')?(?:agent|assistant|robot)|merci|"
    r"(?:pouvez|pourriez)-vous|tout de suite",
    "es": r"okay|ok|vale|hola|y|ahora|ya|por favor|(?:el )?(?:agente|asistente|robot)|gracias|(?:puede|podría)",
    "it": r"okay|ok|allora|e|adesso|ora|subito|per favore|per piacere|(?:l')?(?:agente|assistente|robot)|grazie|"
    r"(?:può|potrebbe)",
    "nl": r"oké|oke|okay|ok|hallo|en|nu|alstublieft|alsjeblieft|graag|even|(?:de )?(?:agent|assistent|robot)|"
    r"bedankt|dank u|(?:kunt|kan) u",
    "pt": r"okay|ok|olá|e|agora|já|por favor|(?:o )?(?:agente|assistente|robô)|obrigad[oa]|(?:pode|poderia)",
}
"""Words that may stand before and after the request."""
_REQUESTS: Final = {
    "en": r"(?:stop|end|quit) (?:listening(?: in| to us)?|transcribing|writing (?:this|that|it) down)"
    r"|(?:stop|end|quit) (?:the |this )?transcri(?:pt|ption)|no more transcri(?:pt|ption)"
    r"|(?:don't|do not) transcribe(?: this| any ?more)?"
    r"|(?:turn|switch) (?:off (?:the )?transcri(?:pt|ption)|(?:the )?transcri(?:pt|ption) off)",
    "de": r"(?:nicht|bitte nicht) (?:mehr|länger|weiter) (?:mithören|zuhören|mitschreiben|mitlesen)"
    r"|hör(?:en sie)? (?:bitte )?(?:jetzt )?auf (?:mitzuhören|zuzuhören|mitzuschreiben)"
    r"|(?:die |das )?(?:mitschrift|transkription|transkript) (?:beenden|stoppen|abbrechen|abschalten|ausschalten|aus)"
    r"|(?:beende|beenden sie|stoppe?|stoppen sie) (?:bitte )?(?:die |das )?(?:mitschrift|transkription|transkript)",
    "fr": r"(?:arrête|arrêtez|arrêter|stoppez|stopper|cesse|cessez) "
    r"(?:la transcription|de transcrire|d'écouter|l'écoute)"
    r"|n'écoute(?:z)? plus|ne transcri(?:s|vez) plus|fin de (?:la )?transcription",
    "es": r"(?:deje|deja|dejar|pare|para|parar) de (?:escuchar|transcribir)|no (?:escuche|escuches|transcriba) más"
    r"|(?:pare|para|parar|detenga|detén|detener|termine|terminar|finalice) la transcripción|fin de la transcripción",
    "it": r"(?:smetta|smetti|smettere) di (?:ascoltare|trascrivere)|non (?:ascolti|ascoltare|trascriva|trascrivere) più"
    r"|(?:ferma|fermi|fermare|interrompa|interrompi|interrompere|termini|terminare) la trascrizione"
    r"|fine della trascrizione",
    "nl": r"(?:stop|stopt|stoppen) (?:met )?(?:luisteren|meeluisteren|transcriberen|meeschrijven)"
    r"|(?:stop|stopt|stoppen) (?:met )?(?:de |het )?transcri(?:ptie|pt)"
    r"|(?:de |het )?transcri(?:ptie|pt) (?:stoppen|beëindigen|uitzetten)"
    r"|niet (?:meer|langer) (?:meeluisteren|luisteren)",
    "pt": r"(?:pare|parar|para|deixe|deixar) de (?:ouvir|escutar|transcrever)|não (?:ouça|escute|transcreva) mais"
    r"|(?:pare|parar|termine|terminar|encerre|encerrar|interrompa) a transcrição|fim da transcrição",
}
_STOP: Final = SentenceRequests(_REQUESTS, _OPTIONAL)


def stops_transcription(text: str, language: str | None) -> bool:
    """Returns True if a sentence of the text is nothing but the request to stop ("please stop the transcript"): one
    that only contains it, such as "he told me to stop listening", is talk. `language` is a BCP 47 tag; a language
    without phrases has those of English."""
    return _STOP.are_in(text, language)
