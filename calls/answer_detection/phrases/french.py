"""French phrases."""

from __future__ import annotations

from typing import Final

from calls.answer_detection.phrases.phrase_set import PhraseSet

_KEY: Final = "(?:zero|un|une|deux|trois|quatre|cinq|six|sept|huit|neuf|etoile|diese|[0-9])"

FRENCH: Final = PhraseSet(
    mailbox_unavailable=(
        "(?:messagerie|boite vocale) (?:vocale )?(?:de votre correspondant )?(?:est|n est) (?:pleine|saturee|pas)",
        "numero (?:que vous avez (?:compose|demande) )?(?:n est (?:pas|plus)|ne peut)",
        "ne (?:peut|peuvent) (?:plus |pas )?recevoir (?:de )?(?:nouveaux )?messages",
        "pas attribue",
        "n a pas de (?:messagerie|boite|repondeur)",
    ),
    unreachable=("correspondant (?:que vous demandez )?n est pas (?:joignable|disponible)",),
    call_screening=(
        "(?:dites|indiquez|donnez|enregistrez|precisez) votre nom (?:et|apres)(?! (?:votre )?(?:numero|un message))",
        "(?:raison|motif|objet) de votre appel",
        "pourquoi vous appelez",
        "filtr(?:e|age) (?:les |des |d )?appels?",
    ),
    voicemail=(
        "(?:apres|au) (?:le |l )?(?:bip|signal|tonalite|top)",
        "(?:messagerie|boite) vocale",
        "repondeur",
        "(?:la|sur la|bien sur la) messagerie",
        "signal sonore",
        "raccroche[rz] ou (?:appuye[rz]|tape[rz]|compose[rz])",
    ),
    voicemail_hint=(
        # A receptionist says these, too.
        "personne au (?:poste|numero)",
        "est (?:presentement |actuellement )?en ligne",
        "(?:finir|terminer) l enregistrement",
        "(?:laissez|laisser|laisse|laissez nous|laissez moi) (?:moi |nous )?(?:un|votre|vos)",
        "(?:ne (?:peux|pouvons|suis|sommes|peut) pas|pas (?:disponible|joignable|la|en mesure)|indisponibles?"
        "|absents?)",
        "(?:vous etes bien|vous etes)",
        "(?:rappell?erai|rappell?erons|rappell?e|rappellera) ?(?:vous )?(?:des|aussitot|au plus|dans)",
        "(?:des que possible|plus vite|plus rapidement|brefs delais|meilleurs delais)",
        "vos coordonnees|votre (?:nom|numero)",
        "un message",
        "horaires d ouverture",
        "(?:personne|correspondant) que vous (?:essayez|tentez|cherchez|demandez|appelez)",
    ),
    menu=(
        f"(?:tapez|appuyez sur|composez|faites|pressez)(?: sur)? (?:le |la |la touche )?{_KEY}",
        "menu principal",
        "(?:options|choix) suivants?",
        "dites ou tapez",
        "touche (?:etoile|diese)",
    ),
    hold_queue=(
        "(?:tous )?nos (?:conseillers|agents|operateurs|collaborateurs|lignes)",
        "(?:temps|duree) d attente",
        "(?:un|votre) conseiller va",
        "(?:votre appel|cet appel|cette conversation) (?:est important|peut etre|est susceptible|va etre|sera)",
        "file d attente",
        "(?:premier|prochain) (?:conseiller|agent|operateur) (?:disponible|libre)",
    ),
    hold_hint=(
        "veuillez patienter|merci de patienter",
        "ne (?:quittez|raccrochez) pas|restez en ligne",
        "merci de votre (?:appel|patience)",
        "quelques instants",
        "mettons en relation",
    ),
    live=(
        "(?:que|comment) puis je|en quoi puis je|je peux vous (?:aider|renseigner)|puis je vous aider",
        "(?:qui|c est qui) (?:est a l appareil|etes vous|est la|appelle|est ce)|c est qui|qui est ce",
        "(?:pouvez|pourriez) vous (?:me |rappeler|repeter|patienter|essayer)",
        "(?:tu peux|vous pouvez|peux tu) (?:me )?(?:rappeler|repeter)",
        "c est (?:a quel sujet|pour quoi|de la part de qui)|de la part de",
        "je suis (?:en reunion|au volant|occupee?|en rendez vous)",
        "a l appareil",
        "vous m entendez|tu m entends|il y a quelqu un",
        "je vous (?:le |la |l )?passe|un instant s il",
        "je vous ecoute|j ecoute",
    ),
    greeting=("allo", "oui", "bonjour", "bonsoir", "oui allo"),
)
