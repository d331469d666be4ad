"""Italian phrases."""

from __future__ import annotations

from typing import Final

from calls.answer_detection.phrases.phrase_set import PhraseSet

_KEY: Final = "(?:zero|uno|due|tre|quattro|cinque|sei|sette|otto|nove|asterisco|cancelletto|[0-9])"

ITALIAN: Final = PhraseSet(
    mailbox_unavailable=(
        "(?:casella|segreteria) (?:vocale |telefonica )?(?:del cliente |e )?(?:e )?(?:piena|non)",
        "numero (?:da lei |che ha )?(?:chiamato|selezionato|composto|digitato) (?:e inesistente"
        "|non e (?:attivo|corretto|assegnato|in uso))",
        "numero (?:inesistente|non attivo)",
        "non (?:e|puo) (?:possibile )?(?:lasciare|ricevere|accettare) (?:altri |ulteriori |nuovi )?messaggi",
        "non ha (?:una |la )?(?:casella|segreteria)",
    ),
    unreachable=("(?:utente|cliente|numero) (?:da lei )?(?:chiamato|selezionato|composto) (?:non|potrebbe|e)",),
    call_screening=(
        "(?:dica|dire|indichi|pronunci|di) il (?:suo|tuo|proprio) nome (?:e|dopo)(?! (?:il )?(?:suo )?(?:numero"
        "|un messaggio))",
        "motivo della (?:sua|tua|chiamata|telefonata)",
        "perche (?:sta|stai) chiamando",
        "filtr(?:a|o|are) (?:le |delle )?chiamate",
    ),
    voicemail=(
        "dopo (?:il |un )?(?:segnale|bip|tono|beep)",
        "(?:segreteria|casella) (?:telefonica|vocale)",
        "segnale acustico",
        "registr(?:i|are|a) (?:il (?:suo|tuo) |un )messaggio",
        "(?:abbassare il ricevitore|riagganciare|riattaccare|riagganci) o (?:prem|digit)\\w+",
    ),
    voicemail_hint=(
        # A receptionist says these, too.
        f"persona all interno {_KEY}",
        "(?:terminare|concludere) la registrazione",
        "(?:lasciate|lasci|lascia|lasciare|lasciateci|lasciatemi) (?:un|il|pure|mi|ci|il vostro)",
        "(?:non (?:posso|possiamo|puo|sono|siamo|e) (?:\\w+ )?(?:rispondere|disponibil[ei]|in casa|raggiungibile"
        "|in ufficio))",
        "(?:risponde|avete chiamato|hai chiamato|ha chiamato)",
        "(?:richiamer(?:o|emo)|vi richiam|sarete ricontattati|ricontatter(?:o|emo))",
        "(?:appena possibile|il prima possibile|al piu presto)",
        "(?:vostro|suo|tuo) (?:nome|numero|recapito)",
        "un messaggio",
        "orari(?:o)? (?:di|d) (?:ufficio|apertura)",
        "persona (?:che (?:sta|stai) (?:chiamando|cercando|tentando)|da lei (?:chiamata|cercata))",
    ),
    menu=(
        f"(?:premere|prema|premi|digiti|digitare|digita|selezioni|selezionare) (?:il |il tasto |o pronunciare )?{_KEY}",
        "menu principale",
        "(?:seguenti|queste) opzioni",
    ),
    hold_queue=(
        "(?:tutti )?(?:i )?nostri (?:operatori|consulenti|agenti)",
        "tempo (?:stimato )?d(?:i)? ?attesa",
        "(?:la (?:sua|vostra) (?:chiamata|telefonata)|la chiamata|la telefonata) (?:e (?:molto )?importante|sara|potra"
        "|potrebbe|verra)",
        "(?:primo|prossimo) operatore (?:disponibile|libero)",
        "in coda",
    ),
    hold_hint=(
        "(?:attendere|attenda|attendi|attendete)(?: prego| in linea)?",
        "(?:resti|restare|rimanga|rimanere|rimanete) in (?:linea|attesa)|non riagganci(?:are|are)?",
        "grazie per (?:l attesa|la pazienza|aver(?:ci)? (?:chiamato|atteso)|la chiamata)",
        "a breve",
    ),
    live=(
        "(?:come|in (?:che )?cosa) (?:posso|possiamo) (?:aiutarl[ao]|aiutarvi|aiutare|aiutarti|esserle)",
        "(?:chi (?:e|parla|sei|chiama)|con chi parlo)",
        "(?:puo|puoi|potrebbe|potresti) (?:richiamare|richiamarmi|ripetere|attendere|chiamare|riprovare)",
        "(?:mi dica|dimmi|di cosa si tratta|desidera)",
        "sono (?:in riunione|in macchina|alla guida|occupat[oa]|impegnat[oa]|al lavoro)",
        "mi (?:sente|senti)|c e qualcuno",
        "(?:le|ti) passo|glielo passo|un (?:attimo|momento)",
    ),
    greeting=("pronto", "si", "si pronto", "buongiorno", "buonasera", "ciao", "salve"),
)
