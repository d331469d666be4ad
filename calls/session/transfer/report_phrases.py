"""What the agent tells the caller about a transfer without a connection if the language model does not, by language."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from storage.calls.transfers import TransferStatus


@dataclass(frozen=True)
class ReportPhrases:
    """Complete sentences, of which all but `cancelled` and `question` name the target. `question` follows each but
    `cancelled`."""

    declined: str
    no_answer: str
    busy: str
    voicemail: str
    failed: str
    cancelled: str
    question: str

    def text(self, status: TransferStatus, target: str) -> str:
        """Returns what the agent says about a transfer to this target that has ended with this status."""
        match status:
            case "declined":
                sentence = self.declined
            case "no_answer":
                sentence = self.no_answer
            case "busy":
                sentence = self.busy
            case "voicemail":
                sentence = self.voicemail
            case "cancelled":
                return self.cancelled
            case _:
                sentence = self.failed
        return f"{sentence.format(target=target)} {self.question}"


_ENGLISH: Final = ReportPhrases(
    declined="I am sorry, {target} cannot take your call at the moment.",
    no_answer="I am sorry, nobody has answered at {target}.",
    busy="I am sorry, the line of {target} is busy.",
    voicemail="I am sorry, at {target} only a mailbox has answered.",
    failed="I am sorry, I could not put you through to {target}.",
    cancelled="All right, I am still here. How can I help you?",
    question="How else can I help you?",
)
_BY_LANGUAGE: Final = {
    "en": _ENGLISH,
    "de": ReportPhrases(
        declined="Es tut mir leid, {target} kann Ihren Anruf im Moment nicht annehmen.",
        no_answer="Es tut mir leid, bei {target} hat niemand abgenommen.",
        busy="Es tut mir leid, bei {target} ist besetzt.",
        voicemail="Es tut mir leid, bei {target} war nur ein Anrufbeantworter zu erreichen.",
        failed="Es tut mir leid, ich konnte Sie nicht mit {target} verbinden.",
        cancelled="Gut, ich bin noch da. Wie kann ich Ihnen helfen?",
        question="Wie kann ich Ihnen sonst helfen?",
    ),
    "fr": ReportPhrases(
        declined="Je suis désolé, {target} ne peut pas prendre votre appel pour le moment.",
        no_answer="Je suis désolé, personne n'a répondu chez {target}.",
        busy="Je suis désolé, la ligne de {target} est occupée.",
        voicemail="Je suis désolé, chez {target}, seul un répondeur a répondu.",
        failed="Je suis désolé, je n'ai pas pu vous mettre en relation avec {target}.",
        cancelled="D'accord, je suis toujours là. Comment puis-je vous aider ?",
        question="Comment puis-je vous aider autrement ?",
    ),
    "es": ReportPhrases(
        declined="Lo siento, {target} no puede atender su llamada en este momento.",
        no_answer="Lo siento, nadie ha contestado en {target}.",
        busy="Lo siento, la línea de {target} está ocupada.",
        voicemail="Lo siento, en {target} solo ha contestado un buzón de voz.",
        failed="Lo siento, no he podido pasarle con {target}.",
        cancelled="De acuerdo, sigo aquí. ¿En qué puedo ayudarle?",
        question="¿Cómo puedo ayudarle de otra forma?",
    ),
    "it": ReportPhrases(
        declined="Mi dispiace, {target} non può rispondere alla sua chiamata in questo momento.",
        no_answer="Mi dispiace, nessuno ha risposto da {target}.",
        busy="Mi dispiace, la linea di {target} è occupata.",
        voicemail="Mi dispiace, da {target} ha risposto solo una segreteria telefonica.",
        failed="Mi dispiace, non sono riuscito a metterla in contatto con {target}.",
        cancelled="Va bene, sono ancora qui. Come posso aiutarla?",
        question="Come altro posso aiutarla?",
    ),
    "pt": ReportPhrases(
        declined="Lamento, {target} não pode atender a sua chamada neste momento.",
        no_answer="Lamento, ninguém atendeu em {target}.",
        busy="Lamento, a linha de {target} está ocupada.",
        voicemail="Lamento, em {target} só atendeu uma caixa de correio de voz.",
        failed="Lamento, não consegui passar a chamada para {target}.",
        cancelled="Está bem, continuo aqui. Em que posso ajudar?",
        question="De que outra forma posso ajudar?",
    ),
    "nl": ReportPhrases(
        declined="Het spijt me, {target} kan uw oproep nu niet aannemen.",
        no_answer="Het spijt me, bij {target} heeft niemand opgenomen.",
        busy="Het spijt me, de lijn van {target} is bezet.",
        voicemail="Het spijt me, bij {target} nam alleen een voicemail op.",
        failed="Het spijt me, ik kon u niet doorverbinden met {target}.",
        cancelled="Goed, ik ben er nog. Waarmee kan ik u helpen?",
        question="Waarmee kan ik u nog helpen?",
    ),
    "pl": ReportPhrases(
        declined="Przykro mi, {target} nie może teraz odebrać połączenia.",
        no_answer="Przykro mi, nikt nie odebrał połączenia: {target}.",
        busy="Przykro mi, linia jest zajęta: {target}.",
        voicemail="Przykro mi, odebrała tylko poczta głosowa: {target}.",
        failed="Przykro mi, nie udało się przekazać połączenia: {target}.",
        cancelled="Dobrze, nadal tu jestem. W czym mogę pomóc?",
        question="W czym jeszcze mogę pomóc?",
    ),
    "sv": ReportPhrases(
        declined="Tyvärr kan {target} inte ta ditt samtal just nu.",
        no_answer="Tyvärr svarade ingen hos {target}.",
        busy="Tyvärr är det upptaget hos {target}.",
        voicemail="Tyvärr svarade bara en röstbrevlåda hos {target}.",
        failed="Tyvärr kunde jag inte koppla dig till {target}.",
        cancelled="Okej, jag är kvar. Vad kan jag hjälpa dig med?",
        question="Vad kan jag annars hjälpa dig med?",
    ),
}


def report_phrases(language: str | None) -> ReportPhrases:
    """Returns the phrases of a language (a BCP 47 tag); English for any other one."""
    return _BY_LANGUAGE.get((language or "en").lower().replace("_", "-").split("-")[0], _ENGLISH)
