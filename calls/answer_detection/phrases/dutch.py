"""Dutch phrases."""

from __future__ import annotations

from typing import Final

from calls.answer_detection.phrases.phrase_set import PhraseSet

_KEY: Final = "(?:nul|een|twee|drie|vier|vijf|zes|zeven|acht|negen|hekje|sterretje|[0-9])"

DUTCH: Final = PhraseSet(
    mailbox_unavailable=(
        "(?:voice ?mail|mailbox|inbox) (?:van \\w+ )?is (?:momenteel )?(?:vol|niet)",
        "(?:niet in gebruik|buiten gebruik|niet aangesloten)",
        "geen (?:nieuwe )?berichten (?:meer )?(?:ontvangen|achterlaten|inspreken)",
        "geen (?:voice ?mail|antwoordapparaat)",
    ),
    unreachable=("(?:nummer|abonnee) (?:dat u (?:heeft )?(?:gekozen|gebeld|belt) )?is (?:niet|buiten)",),
    call_screening=(
        "(?:zeg|noem|vermeld|spreek) (?:alstublieft |a u b )?(?:uw|je) naam (?:en|in|na)(?! (?:uw "
        "|je )?(?:telefoon)?nummer)",
        "reden van (?:uw|je|het) (?:telefoontje|gesprek|oproep|belletje)",
        "waarom (?:u|je) belt",
        "(?:screent|filtert|screening)",
    ),
    voicemail=(
        "na de (?:piep|toon|pieptoon|signaaltoon|biep)",
        "voice ?mail",
        "antwoordapparaat",
        "spreek (?:uw|je|een) (?:boodschap|bericht) in",
        "bericht (?:in te spreken|inspreken)",
        "(?:hang(?:t u)? op|ophangen) of",
    ),
    voicemail_hint=(
        # A receptionist says these, too.
        "persoon op (?:toestel|nummer)",
        "opname te (?:beeindigen|stoppen)",
        "(?:laat|laten) (?:dan |alstublieft |a u b )?(?:een|uw|je) (?:bericht|boodschap|naam)",
        "(?:niet|even niet|momenteel niet) (?:\\w+ ){0,2}(?:bereikbaar|beschikbaar|aanwezig|opnemen|beantwoorden|thuis"
        "|aannemen)",
        "(?:u bent verbonden|je bent verbonden|dit is de)",
        "(?:bel|bellen|belt) (?:ik|we|wij) (?:u|je) (?:\\w+ ){0,4}terug|(?:u|je) (?:\\w+ ){0,4}terug ?gebeld",
        "zo (?:snel|spoedig) mogelijk",
        "(?:uw|je) (?:telefoon)?nummer",
        "(?:een|uw|je) (?:bericht|boodschap)",
        "openingstijden",
        "persoon die u (?:probeert|belt|wilt)",
    ),
    menu=(
        f"(?:toets|druk|kies|druk op|toets dan|kies dan|druk dan op) (?:dan |op )?{_KEY}",
        "(?:hoofdmenu|keuzemenu)",
        "volgende (?:opties|keuzes|mogelijkheden)",
    ),
    hold_queue=(
        "(?:al )?onze (?:medewerkers|lijnen|adviseurs)",
        "(?:geschatte |gemiddelde )?wachttijd|wachtrij",
        "(?:uw (?:oproep|telefoontje)|dit gesprek|het gesprek) (?:is belangrijk|kan|wordt|zal)",
        "(?:eerstvolgende|volgende|eerste) (?:vrije |beschikbare )?medewerker",
        "wachtenden voor u",
    ),
    hold_hint=(
        "(?:een )?(?:ogenblik|moment) (?:geduld)",
        "blijft? u (?:aan|nog)|blijf aan de lijn",
        "(?:dank|bedankt) (?:u )?(?:voor (?:het wachten|uw geduld|het bellen))",
        "zo (?:spoedig|snel) mogelijk te woord",
    ),
    live=(
        "(?:waarmee|hoe|wat) kan ik (?:u|je|voor u)",
        "(?:met wie|wie) (?:spreek ik|is (?:dit|daar)|bent u|ben je)",
        "(?:kunt|kan|zou|kun) (?:u|je) (?:later |me |straks |mij |even |het )*(?:terugbellen|bellen|herhalen|wachten"
        "|proberen)",
        "(?:waar gaat het over|waarover gaat)",
        "ik (?:zit|ben) (?:nu |even |net |nog )?(?:in (?:een )?(?:vergadering|gesprek|de auto)|bezig|aan het)",
        "(?:hoort u|hoor je) (?:me|mij)|is daar iemand",
        "(?:ik )?verbind (?:u|je)|momentje",
        "spreekt u mee",
    ),
    greeting=("hallo", "ja", "ja hallo", "goede ?(?:morgen|middag|avond|dag)", "met", "hoi", "dag"),
)
