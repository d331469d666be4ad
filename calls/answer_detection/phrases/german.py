"""German phrases. Normalized text has "u" for the umlaut and "ss" for the sharp s."""

from __future__ import annotations

from typing import Final

from calls.answer_detection.phrases.phrase_set import PhraseSet

_KEY: Final = "(?:null|eins|zwei|drei|vier|funf|sechs|sieben|acht|neun|raute|stern|[0-9])"

_NOW: Final = "(?:zurzeit |zur zeit |derzeit |momentan |im moment |vorubergehend |leider )"

GERMAN: Final = PhraseSet(
    mailbox_unavailable=(
        "(?:mailbox|anrufbeantworter|sprachbox|postfach) ist (?:leider )?(?:voll|nicht|deaktiviert)",
        "(?:keine|nicht) (?:weiteren |neuen )?nachrichten (?:mehr )?(?:aufnehmen|annehmen|hinterlassen)",
        "kein anschluss unter",
        "(?:rufnummer|nummer) ist (?:uns )?nicht (?:vergeben|bekannt|mehr|belegt|gultig|geschaltet)",
        "(?:hat|ist) (?:auch )?kein(?:e|en)? (?:sprach ?postfach|postfach|anrufbeantworter|mailbox|voice ?mail)",
    ),
    unreachable=(
        f"(?:rufnummer|nummer|teilnehmer|gesprachspartner) ist {_NOW}*nicht (?:zu )?(?:erreichbar|verfugbar)",
    ),
    call_screening=(
        "(?:nennen|sagen) sie (?:bitte )?(?:ihren |deinen )?namen",
        "(?:nenne|sage|sag) (?:bitte )?deinen namen",
        "grund (?:fur |ihres |deines )?(?:ihren |deinen |den )?anrufs?",
        "(?:warum|weshalb) (?:sie|du) anruf(?:en|st)",
        "(?:anruf ?filter|anrufe filtert|anrufassistent)",
    ),
    voicemail=(
        "(?:nach|bis zum|auf den|horen sie den) (?:dem )?(?:signal|piep|pfeif|signalton|piepton|pfeifton|ton)(?:ton)?",
        "(?:mailbox|sprachbox|sprachmailbox) (?:von|des|der)",
        "(?:automatische|automatischen|die|der|der personliche) (?:mailbox|anrufbeantworter|sprachbox)",
        "anrufbeantworter",
        "nachricht (?:auf ?zeichnen|aufnehmen|aufsprechen)",
        "(?:legen sie (?:\\w+ )?auf|auflegen) oder",
        "nach dem ton",
    ),
    voicemail_hint=(
        # A receptionist says these, too.
        "(?:person|teilnehmer(?:in)?) (?:unter|mit|auf|an) (?:der )?(?:durchwahl|nebenstelle)",
        "(?:aufnahme|aufzeichnung) (?:zu )?beenden",
        "(?:hinterlassen|hinterlasst|hinterlass) (?:sie |mir |uns |bitte )*(?:eine|ihre|deine|eure)",
        "nachricht",
        "(?:nicht|leider nicht|gerade nicht|zurzeit nicht|momentan nicht) (?:personlich )?"
        "(?:erreichbar|erreichen|da|zu hause|ans telefon|im buro|entgegennehmen|annehmen|verfugbar)",
        "person die sie (?:erreichen|anrufen|sprechen)",
        "(?:rufe|rufen|melde|melden) (?:ich |wir )?(?:mich |uns )?(?:sie |dich |euch |bei ihnen |bei dir )?"
        "(?:so bald|sobald|so schnell|schnellst|umgehend)",
        "(?:sie haben|du hast|hier ist|das ist) (?:die |den )?(?:mailbox|anschluss)",
        "(?:ihre|deine) (?:telefon|ruf|handy)?nummer",
        "(?:ruft|rufen|melden) (?:sie |dich |uns |wir )?(?:\\w+ )?zuruck",
        "(?:offnungszeiten|geschaftszeiten|burozeiten|sprechzeiten)",
    ),
    menu=(
        f"(?:drucken|wahlen|sagen) sie (?:bitte )?(?:die |oder sagen sie )?{_KEY}",
        f"(?:druck|drucke|wahle) (?:bitte )?(?:die )?{_KEY}",
        "(?:haupt ?menu|folgenden (?:optionen|moglichkeiten)|auswahlmoglichkeiten)",
        "wahlen sie (?:bitte )?(?:aus|zwischen|eine)",
    ),
    hold_queue=(
        "(?:alle )?(?:unsere )?(?:mitarbeiter|platze|leitungen|kundenberater|berater|mitarbeiterinnen)"
        " (?:\\w+ ){0,3}(?:im gesprach|besetzt|belegt|gesprach)",
        "nachste[nr]? freie[nr]? (?:mitarbeiter|platz|berater|leitung|kundenberater)",
        "(?:voraussichtliche|geschatzte|aktuelle|durchschnittliche)?\\s?wartezeit",
        "warteschlange",
        "(?:ihr anruf|das gesprach|dieses gesprach) (?:ist uns wichtig|wird|kann)",
    ),
    hold_hint=(
        "(?:bitte )?warten sie (?:bitte)?",
        "(?:bitte )?bleiben sie (?:bitte )?(?:in|am)",
        "einen (?:augenblick|moment) (?:bitte|geduld)",
        "(?:vielen dank|danke) fur ihre(?:n)? (?:geduld|anruf)",
        "(?:verbunden|wir sind gleich fur sie)",
    ),
    live=(
        "(?:was|wie) kann ich (?:fur (?:sie|dich)|(?:ihnen|dir)|helfen)",
        "(?:womit|wie) kann ich (?:ihnen )?(?:helfen|dienen)",
        "(?:wer|mit wem) (?:ist da|ist dort|spricht da|sind sie|spreche ich|bist du)",
        "(?:konnen|konnten|wurden) sie (?:bitte |mich |spater |noch ?mal |es )*(?:anrufen|wiederholen|versuchen|melden"
        "|warten)",
        "(?:kannst|konntest) du (?:bitte |mich |spater |noch ?mal |es )*(?:anrufen|wiederholen|versuchen|melden"
        "|warten)",
        "(?:um was|worum) geht es|worum geht s",
        "(?:kann|soll) ich (?:etwas ausrichten|sie zuruckrufen|ihn|ihr|dich zuruckrufen)",
        "(?:ich bin|bin) (?:gerade |grad )?(?:in einer besprechung|im auto|beim|am fahren|beschaftigt)",
        "am apparat",
        "horen sie mich|horst du mich|ist da (?:jemand|wer)|wer ist denn da",
        "(?:ich )?verbinde (?:sie|dich)",
        "moment mal",
    ),
    greeting=(
        "hallo", "ja", "ja bitte", "ja hallo", "guten (?:tag|morgen|abend)", "gruss gott", "moin", "servus", "bitte",
    ),
)  # fmt: skip
